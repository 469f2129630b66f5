package recordings

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	prompt := strings.Repeat("You are an agent. ", 12)
	body := `{ "model":"m", "n":1.5e3,"at": 1794794549.87, "id":"01a1e217-70db-77f2-9e76-978fd577873f","again":"x 01a1e217-70db-77f2-9e76-978fd577873f",` +
		`"system":"` + prompt + `\n\"quoted\\","nested":"{\"home\":\"/tmp/agent1/work\",\"at_ms\":1794794549739}","url":"http://127.0.0.1:4711/mcp","esc":"\u00e9" }`
	r := Redactor{Texts: [][2]string{{"/tmp/agent1", "/home/user"}}}
	got := string(r.JSON([]byte(body)))
	want := `{ "model":"m", "n":1.5e3,"at": 1600000000, "id":"00000000-0000-4000-8000-000000000001","again":"x 00000000-0000-4000-8000-000000000001",` +
		`"system":"` + strings.Repeat("Xxx xxx xx xxxxx. ", 12) + `\n\"xxxxxx\\","nested":"{\"home\":\"/home/user/work\",\"at_ms\":1600000000000}","url":"http://127.0.0.1:1/mcp","esc":"\u00e9" }`
	if got != want || !json.Valid([]byte(got)) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	request := r.Request(Request{Method: "POST", Path: "/v1/x", Header: http.Header{"X-Api-Key": {"secret"}, "Host": {"h"}, "User-Agent": {"a/1"}}, Body: body})
	if want := (http.Header{"X-Api-Key": {"KEY"}, "User-Agent": {"a/1"}}); !reflect.DeepEqual(request.Header, want) {
		t.Errorf("headers %v", request.Header)
	}
}

// Every recording is whole, small, and says nothing about the machine that it was made on.
func TestRecordings(t *testing.T) {
	all, err := All()
	if err != nil || len(all) == 0 {
		t.Fatalf("%d recordings: %v", len(all), err)
	}
	// What belongs to the machine that recorded, if it is this one, and what looks like a credential.
	home, _ := os.UserHomeDir()
	folder, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	odd := []string{os.TempDir() + "/", strings.TrimSuffix(home, "/") + "/", filepath.Dir(filepath.Dir(filepath.Dir(folder))) + "/", "sk-"}
	for _, r := range all {
		data, err := Encode(r)
		if err != nil {
			t.Errorf("%s: %v", r.Agent, err)
		}
		if again, err := Decode(data); err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%s: not the same after Encode: %v", r.Agent, err)
		}
		if len(data) > 64<<10 {
			t.Errorf("%s: %d bytes", r.Agent, len(data))
		}
		if len(r.Stdio) == 0 || len(r.HTTP) == 0 || r.Version == "" {
			t.Errorf("%s: %d messages over stdio, %d requests over HTTP", r.Agent, len(r.Stdio), len(r.HTTP))
		}
		requests := append(append([]Request{}, r.Model...), r.HTTP...)
		for _, message := range r.Stdio {
			requests = append(requests, Request{Body: string(message)})
		}
		for _, one := range requests {
			if one.Body != "" && !json.Valid([]byte(one.Body)) {
				t.Errorf("%s: %s is not JSON: %.200s", r.Agent, one.Path, one.Body)
			}
			for _, text := range odd {
				if strings.Contains(one.Body, text) {
					t.Errorf("%s: a body has %s: %.120s", r.Agent, text, one.Body[strings.Index(one.Body, text):])
				}
			}
		}
	}
}
