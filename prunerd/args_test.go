package prunerd

import (
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
)

// P1: the tools and their schemas are those of the specification, which testdata has.
func TestP1Schemas(t *testing.T) {
	s, _ := open(t, nil)
	var names []string
	for _, raw := range s.Tools() {
		var tool struct {
			Name, Title, Description string
			Schema                   any `json:"inputSchema"`
			Annotations              map[string]bool
		}
		if err := json.Unmarshal(raw, &tool); err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
		if tool.Title == "" || tool.Description == "" || !tool.Annotations["readOnlyHint"] || tool.Annotations["openWorldHint"] {
			t.Errorf("%s", raw)
		}
		if tool.Name == "health" {
			continue
		}
		data, err := os.ReadFile("testdata/" + tool.Name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want any
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(tool.Schema, want) {
			t.Errorf("%s: got %v, want %v", tool.Name, tool.Schema, want)
		}
	}
	if got := strings.Join(names, " "); got != "prune_text recover_text health" {
		t.Errorf("tools %s", got)
	}
	cloud, _ := open(t, func(c *Config) { c.Backend = "cloud" })
	if !strings.Contains(string(cloud.Tools()[0]), `"openWorldHint":true`) {
		t.Error("a tool that sends texts away does not say so")
	}
}

const goodPrune = `{"text":"a","goal_hint":"b","source_type":"docs","options":{"max_prune_ratio":0.5,"min_keep_lines":1,"timeout_ms":1000,"annotate_lines":true,"include_markers":false}}`

// P1: arguments that the schema does not allow are rejected, and the error names the argument.
func TestP1PruneArguments(t *testing.T) {
	s, _ := open(t, nil)
	for _, tt := range []struct{ old, new, argument string }{
		{`"a"`, `1`, "text"}, {`"a"`, `null`, "text"}, {`"a"`, `["a"]`, "text"},
		{`"text":"a",`, ``, "text"}, {`"text":"a"`, `"text":"a","texts":1`, "texts"}, {`"text"`, `"Text"`, "Text"},
		{`"b"`, `{}`, "goal_hint"}, {`"goal_hint":"b",`, ``, "goal_hint"},
		{`"docs"`, `"prose"`, "source_type"}, {`"docs"`, `"Docs"`, "source_type"}, {`"docs"`, `3`, "source_type"}, {`"source_type":"docs",`, ``, "source_type"},
		{`{"max_prune_ratio":0.5,"min_keep_lines":1,"timeout_ms":1000,"annotate_lines":true,"include_markers":false}`, `[]`, "options"},
		{`{"max_prune_ratio":0.5,"min_keep_lines":1,"timeout_ms":1000,"annotate_lines":true,"include_markers":false}`, `"x"`, "options"},
		{`,"options":{"max_prune_ratio":0.5,"min_keep_lines":1,"timeout_ms":1000,"annotate_lines":true,"include_markers":false}`, ``, "options"},
		{`"max_prune_ratio":0.5,`, ``, "options.max_prune_ratio"}, {`0.5`, `1.01`, "options.max_prune_ratio"}, {`0.5`, `-0.01`, "options.max_prune_ratio"},
		{`0.5`, `"0.5"`, "options.max_prune_ratio"}, {`0.5`, `true`, "options.max_prune_ratio"}, {`0.5`, `1e999`, "options.max_prune_ratio"}, {`0.5`, `null`, "options.max_prune_ratio"},
		{`"min_keep_lines":1`, `"min_keep_lines":-1`, "options.min_keep_lines"}, {`"min_keep_lines":1`, `"min_keep_lines":1.5`, "options.min_keep_lines"},
		{`"min_keep_lines":1`, `"min_keep_lines":"1"`, "options.min_keep_lines"}, {`"min_keep_lines":1`, `"min_keep_lines":true`, "options.min_keep_lines"},
		{`"min_keep_lines":1,`, ``, "options.min_keep_lines"}, {`"min_keep_lines":1`, `"min_keep_lines":-1e999`, "options.min_keep_lines"},
		{`1000`, `0`, "options.timeout_ms"}, {`1000`, `0.5`, "options.timeout_ms"}, {`1000`, `[]`, "options.timeout_ms"}, {`"timeout_ms":1000,`, ``, "options.timeout_ms"},
		{`true`, `"true"`, "options.annotate_lines"}, {`true`, `1`, "options.annotate_lines"}, {`true`, `null`, "options.annotate_lines"}, {`"annotate_lines":true,`, ``, "options.annotate_lines"},
		{`false`, `"false"`, "options.include_markers"}, {`,"include_markers":false`, ``, "options.include_markers"}, {`:false`, `:false,"colour":1`, "options.colour"},
	} {
		args := strings.Replace(goodPrune, tt.old, tt.new, 1)
		_, err := s.Call(t.Context(), "t", "prune_text", []byte(args))
		refused(t, args, err, tt.argument)
	}
	for _, args := range []string{"", "null", "[]", `"x"`, "7"} {
		_, err := s.Call(t.Context(), "t", "prune_text", []byte(args))
		refused(t, args, err, map[bool]string{true: "text", false: "arguments"}[args == ""])
	}
	if _, err := s.Call(t.Context(), "t", "health", []byte(`{"x":1}`)); failure(t, err).Code != -32602 {
		t.Errorf("health with an argument: %v", err)
	}
	for _, name := range []string{"", "prune", "PRUNE_TEXT", "shell"} {
		if _, err := s.Call(t.Context(), "t", name, nil); failure(t, err).Code != -32602 {
			t.Errorf("the tool %q: %v", name, err)
		}
	}
}

func refused(t *testing.T, args string, err error, argument string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is accepted", args)
		return
	}
	e := failure(t, err)
	var data struct{ Code, Argument string }
	if json.Unmarshal(e.Data, &data) != nil || e.Code != -32602 || data.Code != "invalid_params" || data.Argument != argument || !strings.Contains(e.Message, argument+": ") {
		t.Errorf("%s: got %d %s %s, want one that names %s", args, e.Code, e.Message, e.Data, argument)
	}
}

// P1: numbers as JSON Schema has them.
func TestP1Numbers(t *testing.T) {
	s, _ := open(t, nil)
	for _, tt := range []struct{ old, new string }{
		{`"min_keep_lines":1`, `"min_keep_lines":1.0`}, {`"min_keep_lines":1`, `"min_keep_lines":1e0`}, {`"min_keep_lines":1`, `"min_keep_lines":-0`},
		{`"min_keep_lines":1`, `"min_keep_lines":0`}, {`"min_keep_lines":1`, `"min_keep_lines":1e999`}, {`"min_keep_lines":1`, `"min_keep_lines":99999999999999999999`},
		{`1000`, `1e300`}, {`1000`, `1000.0`}, {`1000`, `9223372036854775807`}, {`0.5`, `0`}, {`0.5`, `1`}, {`0.5`, `5e-1`}, {`0.5`, `-0.0`}, {`"a"`, `""`}, {`"b"`, `""`},
	} {
		args := strings.Replace(goodPrune, tt.old, tt.new, 1)
		if _, err := s.Call(t.Context(), "t", "prune_text", []byte(args)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
	for raw, want := range map[string]int{"3": 3, "3.0": 3, "-7e1": -70, "1e30": math.MaxInt, "-1e30": math.MinInt, "9223372036854775808": math.MaxInt, "0.000": 0} {
		if got, ok := parseInteger([]byte(raw)); !ok || got != want {
			t.Errorf("%s is read as %d, %t", raw, got, ok)
		}
	}
}
