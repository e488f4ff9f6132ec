package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/millrace/millrace/internal/server/strictjson"
	"github.com/millrace/millrace/topics"
)

type inner struct {
	Size  *int    `json:"size,omitempty"`
	Ratio float64 `json:"ratio"`
}

type outer struct {
	Name     string            `json:"name"`
	On       bool              `json:"on"`
	Small    int8              `json:"small"`
	Inner    *inner            `json:"inner"`
	List     []inner           `json:"list"`
	Labels   map[string]string `json:"labels"`
	Raw      json.RawMessage   `json:"raw"`
	Bytes    []byte            `json:"bytes"`
	Wait     topics.Duration   `json:"wait"`
	At       *time.Time        `json:"at"`
	Hidden   string            `json:"-"`
	Unlisted string
}

func decode(text string) (outer, error) {
	var d strictjson.Decoder
	var v outer
	err := d.Decode([]byte(text), "", &v)
	return v, err
}

func TestWhatIsValidIsDecoded(t *testing.T) {
	t.Parallel()
	v, err := decode(` { "name" : "a\"}]b\\" , "on":true, "small":-128, "inner":{"size":7,"ratio":1e3},
		"list":[{"ratio":0.5},{}], "labels":{"a/b":"1","~":"2"}, "raw":{"any":[{"thing":null}]}, "bytes":"AQI=",
		"wait":"1m30s", "at":"2026-01-02T03:04:05Z" }` + "\n")
	require.NoError(t, err)
	assert.Equal(t, `a"}]b\`, v.Name)
	assert.Equal(t, 7, *v.Inner.Size)
	assert.Len(t, v.List, 2)
	assert.Equal(t, []byte{1, 2}, v.Bytes)
	assert.JSONEq(t, `{"any":[{"thing":null}]}`, string(v.Raw))
	assert.Equal(t, topics.Duration(90*time.Second), v.Wait)

	v, err = decode(`{"name":null,"inner":null,"list":null,"wait":null,"at":null,"labels":{"a":null}}`)
	require.NoError(t, err)
	assert.Nil(t, v.Inner)
}

func TestEachFaultHasItsPointerAndCode(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"name":1}`:                            "/name wrong_type",
		`{"on":"yes"}`:                          "/on wrong_type",
		`{"small":128}`:                         "/small out_of_range",
		`{"small":1.0}`:                         "/small wrong_type",
		`{"small":"1"}`:                         "/small wrong_type",
		`{"inner":{"ratio":1e999}}`:             "/inner/ratio out_of_range",
		`{"inner":{"ratio":"1"}}`:               "/inner/ratio wrong_type",
		`{"inner":[]}`:                          "/inner wrong_type",
		`{"list":{}}`:                           "/list wrong_type",
		`{"list":[{},{"size":true}]}`:           "/list/1/size wrong_type",
		`{"list":[[1,2],{"x":1}]}`:              "/list/0 wrong_type; /list/1/x unknown_field",
		`{"labels":{"a/b~":1}}`:                 "/labels/a~1b~0 wrong_type",
		`{"labels":{"a":"1","a":"2"}}`:          "/labels/a duplicate_field",
		`{"wait":"soon"}`:                       "/wait invalid",
		`{"wait":5}`:                            "/wait wrong_type",
		`{"at":"2026-13-01T00:00:00Z"}`:         "/at invalid",
		`{"bytes":5}`:                           "/bytes wrong_type",
		`{"Name":"a"}`:                          "/Name unknown_field",
		`{"-":"a","Hidden":"b","Unlisted":"c"}`: "/- unknown_field; /Hidden unknown_field; /Unlisted unknown_field",
		`{"na\u006de":"a","name":"b"}`:          "/name duplicate_field",
		`"text"`:                                " wrong_type",
	} {
		_, err := decode(text)
		var faults *strictjson.FaultsError
		require.ErrorAs(t, err, &faults, text)
		var got []string
		for _, f := range faults.Faults {
			got = append(got, f.Pointer+" "+f.Code)
			assert.NotEmpty(t, f.Message)
		}
		assert.Equal(t, want, strings.Join(got, "; "), text)
	}
}

func TestBase64ThatIsNone(t *testing.T) {
	t.Parallel()
	_, err := decode(`{"bytes":"%%"}`)
	var faults *strictjson.FaultsError
	require.ErrorAs(t, err, &faults)
}

func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := decode(`{"list":[` + strings.Repeat("1,", 5000) + `1]}`)
	var faults *strictjson.FaultsError
	require.ErrorAs(t, err, &faults)
	assert.Len(t, faults.Faults, 50)
}

func TestPlaceOfASyntaxError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"":                          {1, 1},
		"{\n \"name\": }":           {2, 10},
		"{\"name\":\"a\"} x":        {1, 14},
		"[1,\n2,\n3":                {3, 1},
		strings.Repeat("[", 20_000): {1, 10_001},
	} {
		_, err := decode(text)
		var syntax *strictjson.SyntaxError
		require.ErrorAs(t, err, &syntax, text)
		assert.Equal(t, want, [2]int{syntax.Line, syntax.Column}, "%.30s: %s", text, syntax.Reason)
	}
}

// What the strict decoder accepts, encoding/json accepts with the same result;
// whatever the bytes, it does not panic.
func FuzzDecode(f *testing.F) {
	f.Add(`{"name":"a","inner":{"size":1},"list":[{"ratio":2}],"raw":[1,{"a":"]"}],"labels":{"x":"y"}}`)
	f.Add(`{"name":"\ud800","at":"2026-01-02T03:04:05Z","wait":"1s","bytes":"AA=="}`)
	f.Add(`[`)
	f.Fuzz(func(t *testing.T, text string) {
		v, err := decode(text)
		if err != nil {
			return
		}
		var want outer
		require.NoError(t, json.Unmarshal([]byte(text), &want))
		require.Equal(t, want, v)
	})
}

func TestATolerantDecoderPassesOverNames(t *testing.T) {
	t.Parallel()
	d := strictjson.Decoder{Tolerant: true}
	var v outer
	require.NoError(t, d.Decode([]byte(`{"NAME":"n","more":{"any":[1]},"inner":{"Size":3,"colour":"red"},"labels":{"A":"1"}}`), "", &v))
	assert.Equal(t, "n", v.Name)
	assert.Equal(t, 3, *v.Inner.Size)
	assert.Equal(t, map[string]string{"A": "1"}, v.Labels, "keys of maps are data")

	err := d.Decode([]byte(`{"Name":1,"inner":{"SIZE":"x"},"on":true,"ON":false}`), "", &v)
	var faults *strictjson.FaultsError
	require.ErrorAs(t, err, &faults)
	assert.Len(t, faults.Faults, 3, "what is known is checked as strictly: %v", err)
}
