package llm

import "testing"

// H+5: the usage of all rounds adds up, whatever the provider's member names.
func TestSumUsage(t *testing.T) {
	for _, c := range [][3]string{
		{``, `{"a":1}`, `{"a":1}`},
		{`{"a":1}`, ``, `{"a":1}`},
		{`{"a":1}`, `null`, `{"a":1}`},
		{`{"a":1,"d":{"x":2,"y":null},"t":"fast"}`, `{"a":41,"d":{"x":3,"y":4,"z":null},"t":"slow","n":7}`, `{"a":42,"d":{"x":5,"y":4,"z":null},"t":"slow","n":7}`},
		{`{"cost":0.25}`, `{"cost":1}`, `{"cost":1.25}`},
		{`{"each":[{"a":1}]}`, `{"each":[{"a":2}]}`, `{"each":[{"a":1},{"a":2}]}`},
		{`{"a":9223372036854775807}`, `{"a":1}`, `{"a":9223372036854775807}`}, // saturated at the largest integer
		{`{"a":-9223372036854775808}`, `{"a":-1}`, `{"a":-9223372036854775808}`},
		{`{"a":1e300}`, `{"a":-2}`, `{"a":1e+300}`},
		{`{"a":1e308}`, `{"a":1e308}`, `{"a":1e308}`},
		{`{"a":{}}`, `{"a":2}`, `{"a":2}`},
		{`{"a":true}`, `{"a":false}`, `{"a":false}`},
	} {
		if got := string(SumUsage([]byte(c[0]), []byte(c[1]))); got != c[2] {
			t.Errorf("%s and %s are %s, not %s", c[0], c[1], got, c[2])
		}
	}
	if got := string(UpdateUsage([]byte(`{"in":5,"out":1,"d":{"a":1}}`), []byte(`{"out":7,"in":null,"d":{"b":2}}`))); got != `{"in":5,"out":7,"d":{"a":1,"b":2}}` {
		t.Error(got)
	}
}
