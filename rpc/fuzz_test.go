package rpc

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/ctxgate/ctxgate/jsonscan"
)

// reading is what a parser understood of a message, as far as policy is concerned.
type reading struct {
	Refused string `json:"refused"`
	Method  string `json:"method"`
	Name    string `json:"name"`
	URI     string `json:"uri"`
	IDKind  string `json:"id_kind"`
	ID      string `json:"id"`
}

// python is a python3 process that parses one message after another.
type python struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

func startPython(tb testing.TB) *python {
	cmd := exec.Command("python3", "testdata/oracle.py")
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatalf("python3 is needed as the second opinion: %v", err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	return &python{in: in, out: bufio.NewReaderSize(out, 1<<20)}
}

func (p *python) parse(tb testing.TB, body []byte) reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := fmt.Fprintln(p.in, hex.EncodeToString(body)); err != nil {
		tb.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		tb.Fatal(err)
	}
	var r reading
	if err := json.Unmarshal(line, &r); err != nil {
		tb.Fatal(err)
	}
	return r
}

// parseJSONText is jsontext's reading, with its own rule on duplicate names.
func parseJSONText(body []byte) reading {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	doc, err := d.ReadValue()
	if err != nil {
		return reading{Refused: err.Error()}
	}
	doc = doc.Clone()
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return reading{Refused: "trailing data"}
	}
	top := members(doc)
	params := members(top["params"])
	r := reading{Method: str(top["method"]), Name: str(params["name"]), URI: str(params["uri"]), IDKind: "none"}
	if id, ok := top["id"]; ok {
		r.IDKind, r.ID = idReading(id)
	}
	return r
}

func members(v jsontext.Value) map[string]jsontext.Value {
	out := map[string]jsontext.Value{}
	if v.Kind() != '{' {
		return out
	}
	d := jsontext.NewDecoder(bytes.NewReader(v))
	_, _ = d.ReadToken()
	for d.PeekKind() == '"' {
		key, _ := d.ReadToken()
		name := key.String()
		val, _ := d.ReadValue()
		out[name] = val.Clone()
	}
	return out
}

func str(v jsontext.Value) string {
	if v.Kind() != '"' {
		return ""
	}
	tok, _ := jsontext.NewDecoder(bytes.NewReader(v)).ReadToken()
	return tok.String()
}

func idReading(raw []byte) (kind, id string) {
	switch raw[0] {
	case '"':
		return "string", string(jsonscan.AppendDecoded(nil, raw[1:len(raw)-1]))
	case 'n':
		return "null", ""
	}
	return "number", string(raw)
}

func ours(r Request) reading {
	out := reading{Method: r.Method, Name: r.Name, URI: r.URI, IDKind: "none"}
	if r.ID.IsSet() {
		out.IDKind, out.ID = idReading(r.ID.Raw())
	}
	return out
}

// parseAsGoSDK is the reading of the official Go SDK's envelope, and of encoding/json below it, which does not tell upper from lower case
// and takes the last of two members.
func parseAsGoSDK(body []byte) reading {
	m, err := jsonrpc.DecodeMessage(body)
	if err != nil {
		return reading{Refused: err.Error()}
	}
	req, ok := m.(*jsonrpc.Request)
	if !ok {
		return reading{Refused: "no request"}
	}
	var params struct{ Name, URI any }
	_ = json.Unmarshal(req.Params, &params) // params may be an array
	name, _ := params.Name.(string)
	uri, _ := params.URI.(string)
	return reading{Method: req.Method, Name: name, URI: uri}
}

// checkSameReading checks that what we accept, the other parsers accept too and read the same way. It reports whether we do.
func checkSameReading(tb testing.TB, py *python, body []byte) bool {
	req, err := ParseRequest(body, 64)
	if err != nil {
		return false
	}
	got := ours(req)
	if sdk := parseAsGoSDK(body); sdk.Refused == "" && (sdk.Method != got.Method || sdk.Name != got.Name || sdk.URI != got.URI) {
		tb.Fatalf("%q:\nwe read   %+v\nthe Go SDK reads %+v", body, got, sdk)
	}
	for name, theirs := range map[string]reading{"jsontext": parseJSONText(body), "python3": py.parse(tb, body)} {
		if got != theirs {
			tb.Fatalf("%q:\nwe read   %+v\n%s reads %+v", body, got, name, theirs)
		}
	}
	return true
}

// FuzzEnvelope: ParseRequest accepts nothing that jsontext or python3 rejects, and reads the same method,
// name, uri and id.
func FuzzEnvelope(f *testing.F) {
	py := startPython(f)
	for _, seed := range hostile() {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkSameReading(t, py, body) })
}

// FuzzReply: ParseReply never panics, and jsontext accepts what it accepts, except duplicate names below
// the envelope.
func FuzzReply(f *testing.F) {
	for _, seed := range hostile() {
		f.Add([]byte(strings.Replace(strings.Replace(seed, `"method"`, `"x"`, 1), `"params"`, `"result"`, 1)))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":["` + strings.Repeat("long ", 30) + `"]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		rep, err := ParseReply(body, 64, 10)
		if err != nil {
			return
		}
		var top map[string]json.RawMessage
		d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
		if _, err := d.ReadValue(); err != nil {
			t.Fatalf("%q: accepted, jsontext says %v", body, err)
		}
		if err := json.Unmarshal(body, &top); err != nil {
			t.Fatalf("%q: accepted, encoding/json says %v", body, err)
		}
		if !bytes.Equal(bytes.TrimSpace(top["id"]), rep.ID.Of(body)) {
			t.Fatalf("%q: id %s, want %s", body, rep.ID.Of(body), top["id"])
		}
	})
}

// hostile is the S1 corpus: the ways to make two parsers see two different messages.
func hostile() []string {
	const head, tail = `{"jsonrpc":"2.0","id":1,"method":"tools/call",`, `}`
	params := []string{
		`"params":{"name":"safe"}`, `"params":{"name":"safe","name":"danger"}`, `"params":{"name":"safe","Name":"danger"}`,
		`"params":{"name":"safe"},"params":{"name":"danger"}`, `"params":{"name":"safe"},"paramſ":{"name":"danger"}`,
		`"params":{"name":"safe"},"PARAMS":{"name":"danger"}`, `"params":{"n\u0061me":"a","name":"b"}`,
		`"params":{"name":"a\u0000b"}`, `"params":{"name":"\ud800"}`, `"params":{"name":"\ud83d\ude00"}`, "\"params\":{\"name\":\"\xff\"}",
		`"params":{"uri":"file:///a","uri":"file:///b"}`, `"params":{"uri":"file:///\u002e\u002e"}`, `"params":{"name":1e400}`,
		`"params":{"name":NaN}`, `"params":{"name":-0,"uri":"x"}`, `"params":{"arguments":{"a":{"a":1,"a":2}}}`, `"params":[{"name":"x"}]`,
		`"method":"other"`, `"Method":"other"`, `"id":2`, `"ID":2`, `"id":"1"`, `"params":{"_meta":{"x":1},"_Meta":{}}`, `"params":{}//c`,
		`"params":{"name":"tab	"}`, `"params":{"name":"K"}`, `"params":{"name":"` + strings.Repeat(`\"é`, 60) + `"}`,
	}
	ids := []string{`1`, `"1"`, `1.0`, `1e0`, `-0`, `null`, `9007199254740993`, `1e400`, `"\u0031"`, `true`, `{}`, `01`, `+1`, `0x1`, `1_0`}
	var out []string
	for _, p := range params {
		out = append(out, head+p+tail)
	}
	for _, id := range ids {
		out = append(out, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
	}
	return append(out, "\xef\xbb\xbf"+head+params[0]+tail, head+params[0]+tail+"\x00", head+params[0]+tail+"}", ` `+head+params[0]+tail+"\n",
		`[`+head+params[0]+tail+`]`, "\xff\xfe{\x00}\x00", strings.Repeat(`{"a":`, 70)+"1"+strings.Repeat("}", 70), `{}`, ``)
}

// S1: over 10,000 hostile messages, halves of two joined and single bytes changed, none is accepted that jsontext, the Go SDK or python3 reads
// with another method, name or URI.
func TestS1HostileMessages(t *testing.T) {
	py := startPython(t)
	corpus := hostile()
	n, accepted := 0, 0
	check := func(body string) {
		n++
		if checkSameReading(t, py, []byte(body)) {
			accepted++
		}
	}
	for _, a := range corpus {
		for _, b := range corpus {
			cut := len(a) * 2 / 3
			check(a[:cut] + b[min(cut, len(b)):])
			check(strings.Replace(a, `"params"`, strings.Trim(b, "{}")+`,"params"`, 1))
		}
		for i := 0; i < len(a) && i < 160; i++ {
			check(a[:i] + "\x00" + a[i+1:])
			check(a[:i] + a[i+1:])
		}
	}
	if t.Logf("%d messages, %d of them accepted", n, accepted); n < 10_000 || accepted == 0 {
		t.Errorf("only %d messages, %d of them accepted", n, accepted)
	}
}
