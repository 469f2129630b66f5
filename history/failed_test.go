package history

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// H8 in profile = "document": any word of the document's list marks an error, even if the text only mentions
// one, and so does the key error in a JSON object, whatever its value.
func TestH8DocumentList(t *testing.T) {
	for text, want := range map[string]bool{
		"Traceback (most recent call last):":        true,
		"    raise MyException(\"no\")":             true,
		"except Exception as e:":                    true,
		"self.timeout = timeout":                    true,
		"response_timeout_ms 5":                     true,
		"got connect_error":                         true,
		"connect: connection refused":               true,
		"fine\nError: no such file":                 true,
		"fine\nErrors and how to avoid them":        true,
		"Error: no such file":                       true,
		`{"error":null,"rows":[]}`:                  true,
		`{"error":false}`:                           true,
		`{"error":{}}`:                              true,
		`{"status":"error"}`:                        true,
		`{"log":"Traceback"}`:                       true,
		`{"status":"ok","note":"timeout"}`:          true,
		`return {"error": str(e)}`:                  true,
		`[{"error":1}]`:                             true, // the text contains "error"
		"src/x.rs\nerror: mismatched types":         true, // by the narrower rules
		"":                                          false,
		"ok":                                        false,
		"no errors, 0 error":                        false,
		"Errors and how to avoid them":              false,
		`{"status":"ok","errors":0}`:                false,
		"Error handling is described in chapter 3.": true, // a line that starts with the word
	} {
		if got := hasHint([]byte(text)) && isFailedByDocument([]byte(text)); got != want {
			t.Errorf("%q: is an error: got %v, want %v", text, got, want)
		}
	}
}

// H8: whatever the narrower rules call an error, the document's rules do too; each profile caches its own verdict.
func TestH8AgentsIsNarrower(t *testing.T) {
	words := []string{"Traceback", "Exception", "timeout", "connect_error", "connection refused", "\n", "Error", `"error"`, ": ", "{", "}", "null", "raise ", "x", "status"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "text"), "")
		if isFailedText([]byte(text)) && !isFailedByDocument([]byte(text)) {
			t.Fatalf("%q is an error only by the narrower rules", text)
		}
	})
	d := mustRead(t, openAIChat, []byte(`{"messages":[{"role":"tool","tool_call_id":"a","content":"    raise MyException(1)"}]}`))
	for range 2 { // the second time from the cache
		if !d.looksFailed(Policy{}, 0) || d.looksFailed(Policy{Agents: true}, 0) {
			t.Error("source code that mentions an exception is an error in profile document only")
		}
	}
}

// H8 in profile = "agents": errors are recognized, and texts that only mention one are not.
func TestH8LooksLikeAnError(t *testing.T) {
	for text, want := range map[string]bool{
		"Traceback (most recent call last):\n  File \"x.py\"": true,
		"java.lang.NullPointerException: x is null":           true,
		"Exception in thread \"main\" boom":                   true,
		"Unhandled Exception":                                 true,
		"Error: no such file":                                 true,
		"Error":                                               true,
		"Error.":                                              true,
		"ok so far\nError executing tool":                     true,
		"ERROR something broke":                               true,
		"src/x.rs\nerror: mismatched types":                   true,
		"error[E0308]: mismatched types":                      true,
		"request timeout":                                     true,
		"Timeout after 30s":                                   true,
		"requests.exceptions.ReadTimeout: pool":               true,
		"TimeoutError: navigation":                            true,
		"timeout: the server did not answer":                  true,
		"connect_error":                                       true,
		"dial tcp 127.0.0.1:80: connect: connection refused":  true,
		"curl: (7) Connection refused":                        true,
		`HTTP 500 {"error": "boom"}`:                          true,
		`{"error":"x"}`:                                       true,
		` [{"x":1}, `:                                         false,
		`{"error":{"code":1},"x":2}`:                          true,
		`{"status":"error"}`:                                  true,
		`{"error": "cut off`:                                  true, // not JSON: the rules for text apply

		"":                                   false,
		"ok":                                 false,
		`{"error":null,"rows":[]}`:           false,
		`{"error":false}`:                    false,
		`{"error":""}`:                       false,
		`{"error":{}}`:                       false,
		`{"error":[ ]}`:                      false,
		`{"status":"ok","note":"timeout"}`:   false,
		`["Error: inside a list"]`:           false,
		`{"log":"Traceback"}`:                false,
		"raise ValueError('x')":              false,
		"    raise MyException(\"no\")":      false,
		"return errors.New(\"timeout\")":     false,
		"except Exception as e:":             false,
		"} catch (Exception e) {":            false,
		"  12\texcept TimeoutError:":         false,
		"class MyException(Exception):":      false,
		"import java.lang.Exception;":        false,
		"self.timeout = timeout":             false,
		"timeout=30":                         false,
		"timeout: 30":                        false,
		"setTimeout(() => {}, 5)":            false,
		"ctx, cancel := context.WithTimeout": false,
		"response_timeout_ms 5":              false,
		"Errors and how to avoid them":       false,
		"ErrorBoundary.tsx\nError.tsx":       false,
		"no errors, 0 error":                 false,
		`map[string]any{"error": nil,`:       true, // the value may be an error
		`return {"error": str(e)}`:           false,
		"the error: is in the middle":        false,
	} {
		if got := hasHint([]byte(text)) && isFailedText([]byte(text)); got != want {
			t.Errorf("%q: is an error: got %v, want %v", text, got, want)
		}
	}
}

// H8: an Anthropic result with is_error is an error.
func TestH8IsError(t *testing.T) {
	d := mustRead(t, anthropicMessages, []byte(`{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,"content":"no luck"}]}]}`))
	if p := DefaultPolicy(); !d.looksFailed(p, 0) {
		t.Error("is_error was ignored")
	}
	if p := (Policy{Agents: true}); !d.looksFailed(p, 0) {
		t.Error("is_error was ignored in profile agents")
	}
}

// hasHint finds every hint although it looks at every second offset only.
func TestHasHint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		for range rapid.IntRange(0, 6).Draw(t, "n") {
			b.WriteString(rapid.SampledFrom([]string{"r", "ro", "rror", "RROR", "raceback", "xception", "imeout", "IMEOUT", "onnection refused", `\u00`, "ef", "fu", " ", "imeo", "ut"}).Draw(t, "s"))
		}
		want := false
		for _, h := range hints[1:] {
			want = want || strings.Contains(b.String(), h.text)
		}
		if got := hasHint([]byte(b.String())); got != want {
			t.Fatalf("%q: got %v", b.String(), got)
		}
	})
}
