package sagas_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/workflow"
	"github.com/millrace/millrace/sagas"
)

func nothing[S any](context.Context, sagas.Tx, *S) error { return nil }

func TestASagaIsADefinition(t *testing.T) {
	t.Parallel()
	s := sagas.New[Order]("order",
		sagas.Step("reserve", nothing[Order], sagas.Compensate(nothing[Order], sagas.Retry(2, time.Minute), sagas.Timeout(90*time.Second))),
		sagas.Remote("pay", "bank", "charge", sagas.CompensateBy("refund"), sagas.Fields("item", "count"), sagas.Output("payment"),
			sagas.RetryPolicy{Count: 3, Initial: 1500 * time.Millisecond, Max: time.Minute, Multiplier: 3, Jitter: 0.5, On: []string{"busy"}}),
		sagas.Step("ship", nothing[Order], sagas.Timeout(-1)),
	).Within(time.Hour).Described("sells nuts")
	text, err := s.Document()
	require.NoError(t, err)
	assert.JSONEq(t, `{"id":"order","name":"order","description":"sells nuts","timeout":"PT3600S","onFailure":"compensate","steps":[
		{"id":"reserve","name":"reserve","type":"COMMAND","commandType":"reserve","participant":"order","nextStep":"pay","timeout":"PT900S",
		 "compensation":{"commandType":"compensate:reserve","participant":"order","timeout":"PT90S","retry":{"count":2,"initial":"PT60S"}}},
		{"id":"pay","name":"pay","type":"COMMAND","commandType":"charge","participant":"bank","nextStep":"ship","timeout":"PT900S","outputVariable":"payment",
		 "input":{"item":"${item}","count":"${count}"},"retry":{"count":3,"initial":"PT1.5S","max":"PT60S","multiplier":3,"jitter":0.5,"on":["busy"]},
		 "compensation":{"commandType":"refund","participant":"bank","input":{"item":"${item}","count":"${count}"}}},
		{"id":"ship","name":"ship","type":"COMMAND","commandType":"ship","participant":"order","nextStep":"END"},
		{"id":"END","name":"end","type":"END"}]}`, string(text))
	again, err := s.Document()
	require.NoError(t, err)
	assert.Equal(t, string(text), string(again), "or every start of the program would make a version")
	d, err := workflow.Parse(text)
	require.NoError(t, err)
	_, err = workflow.Compile(d)
	require.NoError(t, err)
}

type pipe struct {
	Data   string `json:"data"`
	Signal chan int
}

type deep struct {
	List []map[string]*pipe `json:"list"`
	Call func()             `json:"call"`
}

type unexported struct {
	Name   string `json:"name"`
	secret string
}

type forgotten struct {
	Kept string `json:"kept"`
	Gone string `json:"-"`
}

type faulty struct {
	Err error `json:"err"`
}

type oneWay struct{}

func (oneWay) MarshalJSON() ([]byte, error) { return []byte(`"x"`), nil }

type withOneWay struct{ V oneWay }

type lossy struct{ n int }

func (l lossy) MarshalJSON() ([]byte, error)  { return json.Marshal(l.n + 1) }
func (l *lossy) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &l.n) }

type withLossy struct{ V lossy }

type tree struct {
	Name     string             `json:"name"`
	When     time.Time          `json:"when"`
	Parts    []tree             `json:"parts,omitempty"`
	More     map[string]any     `json:"more,omitempty"`
	Raw      json.RawMessage    `json:"raw,omitempty"`
	Children map[string]*tree   `json:"children,omitempty"`
	Prices   map[int][2]float64 `json:"prices,omitempty"`
}

func TestAStateIsDataOnly(t *testing.T) {
	t.Parallel()
	_ = unexported{secret: ""}
	for _, test := range []struct {
		err  error
		says []string
	}{
		{sagas.New[pipe]("s", sagas.Step("a", nothing[pipe])).Validate(), []string{"sagas_test.pipe.Signal: a chan cannot be kept", "give what a step works with to the saga's constructor"}},
		{sagas.New[deep]("s", sagas.Step("a", nothing[deep])).Validate(), []string{"sagas_test.deep.List.Signal: a chan", "sagas_test.deep.Call: a func"}},
		{sagas.New[unexported]("s", sagas.Step("a", nothing[unexported])).Validate(), []string{"unexported.secret: is not exported"}},
		{sagas.New[forgotten]("s", sagas.Step("a", nothing[forgotten])).Validate(), []string{"forgotten.Gone: is left out of JSON"}},
		{sagas.New[faulty]("s", sagas.Step("a", nothing[faulty])).Validate(), []string{"faulty.Err: a value of the interface error cannot be read back"}},
		{sagas.New[withOneWay]("s", sagas.Step("a", nothing[withOneWay])).Validate(), []string{"has MarshalJSON and no UnmarshalJSON"}},
		{sagas.New[withLossy]("s", sagas.Step("a", nothing[withLossy])).Validate(), []string{"does not come back from JSON as it was"}},
		{sagas.New[int]("s", sagas.Step("a", nothing[int])).Validate(), []string{"int is no struct"}},
		{sagas.NewParticipant("p", sagas.Handle("c", func(context.Context, sagas.Tx, pipe) (Order, error) { return Order{}, nil })).Validate(), []string{"pipe.Signal: a chan"}},
	} {
		for _, says := range test.says {
			assert.ErrorContains(t, test.err, says)
		}
	}
	assert.NoError(t, sagas.New[tree]("s", sagas.Step("a", nothing[tree])).Validate())
}

func TestMistakesAreToldAtOnce(t *testing.T) {
	t.Parallel()
	s := sagas.New[Order]("An Order",
		sagas.Step("a", nothing[tree]),
		sagas.Step("a", nothing[Order], sagas.Compensate(nothing[tree]), sagas.Retry(-1, 0)),
		sagas.Step[Order]("b", nil, sagas.CompensateBy("undo"), sagas.Fields("x")),
		sagas.Remote("c", "", "", sagas.Compensate(nothing[Order], sagas.RetryPolicy{Multiplier: 0.5, Jitter: 2})),
	).Within(-time.Second)
	err := s.Validate()
	for _, says := range []string{
		`saga "An Order": the name is not`, `step "a": the action takes *sagas_test.tree, and the state of the saga is sagas_test.Order`,
		`step "a": the name is taken`, `the compensation takes *sagas_test.tree`, "retry count -1",
		`step "b": the action is nil`, "CompensateBy is for remote steps", "Fields is for remote steps",
		`step "c": a remote step needs a participant`, "compensation: retry multiplier 0.5", "retry jitter 2", "Compensate is for steps of this program", "within -1s",
	} {
		assert.ErrorContains(t, err, says)
	}
	_, documentErr := s.Document()
	assert.True(t, errors.Is(documentErr, err) || documentErr.Error() == err.Error())
	assert.ErrorContains(t, sagas.New[Order]("o").Validate(), "it has no steps")
	assert.ErrorContains(t, sagas.NewParticipant("p").Validate(), "it handles no command")
}
