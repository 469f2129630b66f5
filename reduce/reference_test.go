package reduce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// runReference feeds documents to testdata/reference.py and returns its answers.
func runReference(tb testing.TB, in io.Reader) [][]byte {
	cmd := exec.Command("python3", "testdata/reference.py")
	cmd.Stdin = in
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		tb.Fatalf("python3 testdata/reference.py: %v\n%s", err, stderr.Bytes())
	}
	return bytes.Split(bytes.TrimSpace(out), []byte("\n"))
}

func decode(tb testing.TB, body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		tb.Fatalf("%s: %v", body, err)
	}
	return normal(v)
}

// normal lets numbers that python re-prints (1e400, -1.50) compare by kind only: the mask does
// not touch them, and the bytes are another law's business.
func normal(v any) any {
	switch v := v.(type) {
	case json.Number:
		return "number"
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	}
	return v
}

// asciiOnly writes every character beyond ASCII as its escape, as python's json does.
func asciiOnly(raw []byte) []byte {
	var out []byte
	for len(raw) > 0 {
		r, n := utf8.DecodeRune(raw)
		switch {
		case r < utf8.RuneSelf:
			out = append(out, raw[:n]...)
		case r > 0xFFFF:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04X`, r)
		}
		raw = raw[n:]
	}
	return out
}
