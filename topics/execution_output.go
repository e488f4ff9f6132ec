package topics

// ExecutionOutput is a piece of what an attempt wrote. It changes no state. The
// pieces of one stream and attempt, put together by Index, are the kept output,
// byte by byte.
type ExecutionOutput struct {
	// ExecutionID is the id of the execution: key and subject.
	ExecutionID string `json:"execution_id" schema:"minLength=1,maxLength=255"`
	// Attempt counts from 1.
	Attempt int `json:"attempt" schema:"minimum=1"`
	// Stream is where it was written.
	Stream string `json:"stream" schema:"enum=stdout|stderr"`
	// Index counts the pieces of this stream and attempt from 0.
	Index int `json:"index" schema:"minimum=0"`
	// Offset is where the piece begins in the stream, in bytes.
	Offset int64 `json:"offset" schema:"minimum=0"`
	// Data is the piece, any bytes; base64 in JSON.
	Data []byte `json:"data,omitempty"`
	// Size is the length of Data in bytes.
	Size int `json:"size" schema:"minimum=0"`
}

// EventType implements Event.
func (ExecutionOutput) EventType() string { return "millrace.execution.output.v1" }

// EventKey implements Event: the execution id.
func (e ExecutionOutput) EventKey() string { return e.ExecutionID }

func executionOutputType() Type {
	return newType(ExecutionEvents, "", ExecutionOutput{
		ExecutionID: exampleExecutionID,
		Attempt:     1,
		Stream:      "stdout",
		Index:       0,
		Offset:      0,
		Data:        []byte("hello\n"),
		Size:        6,
	})
}
