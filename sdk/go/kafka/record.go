package kafka

import (
	"crypto/sha1" //nolint:gosec // it makes a name, and guards nothing
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/sdk/go/client"
	pb "github.com/millrace/millrace/sdk/go/internal/enginepb"
)

// Headers of records that tell what JobDispatchEvent has no field for everywhere.
const (
	headerToken   = "millrace-token"
	headerAttempt = "millrace-attempt"
)

// dispatch is a job that a record brought.
type dispatch struct {
	job     client.Job
	dedupID string
}

// decode reads a record.
func decode(r *kgo.Record) (dispatch, error) {
	var event pb.JobDispatchEvent
	if err := proto.Unmarshal(r.Value, &event); err != nil {
		return dispatch{}, fmt.Errorf("decode a JobDispatchEvent: %w", err)
	}
	if event.GetJobId() == "" {
		return dispatch{}, fmt.Errorf("decode a JobDispatchEvent: it names no job")
	}
	d := dispatch{dedupID: event.GetDedupId(), job: client.Job{
		ID: event.GetJobId(), JobType: event.GetJobType(), InstanceID: event.GetInstanceId(), StepID: event.GetStepId(),
		StepExecutionID: event.GetStepExecutionId(), Attempt: int(event.GetAttempt()), RetriesRemaining: int(event.GetRetriesRemaining()),
		Token: event.GetToken(), Variables: event.GetJobPayload(),
	}}
	for _, h := range r.Headers {
		n, err := strconv.ParseInt(string(h.Value), 10, 64)
		switch {
		case err != nil:
		case h.Key == headerToken:
			d.job.Token = n
		case h.Key == headerAttempt:
			d.job.Attempt = int(n)
		}
	}
	return d, nil
}

// maxTopicName is Kafka's limit.
const maxTopicName = 249

// TopicOf is the topic of a job type: workflow.jobs.<jobType>. Bytes that names of topics
// must not have are written as "_x" and two hexadecimal digits; what is too long is cut,
// and ends in a digest of the whole, a UUID of version 5.
func TopicOf(jobType string) string {
	name := []byte(TopicPrefix)
	for _, c := range []byte(jobType) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
			name = append(name, c)
		default:
			name = fmt.Appendf(name, "_x%02x", c)
		}
	}
	if len(name) > maxTopicName {
		digest := digestOf(jobType)
		name = append(name[:maxTopicName-len(digest)], digest...)
	}
	return string(name)
}

// spaceOID is the name space for object identifiers of RFC 9562.
var spaceOID = [16]byte{0x6b, 0xa7, 0xb8, 0x12, 0x9d, 0xad, 0x11, 0xd1, 0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8}

func digestOf(text string) string {
	h := sha1.New() //nolint:gosec // version 5 of UUIDs is made with it
	h.Write(spaceOID[:])
	h.Write([]byte(text))
	id := h.Sum(nil)[:16]
	id[6], id[8] = id[6]&0x0f|0x50, id[8]&0x3f|0x80
	x := hex.EncodeToString(id)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}
