package prune

import (
	"strings"
	"testing"
)

func TestDetectKind(t *testing.T) {
	for name, c := range map[string]struct {
		want Kind
		text string
	}{
		"empty":      {Docs, ""},
		"one word":   {Docs, "hello"},
		"go":         {Code, pieceText("go")},
		"python":     {Code, pieceText("python")},
		"java":       {Code, pieceText("java")},
		"javascript": {Code, pieceText("js")},
		"rust":       {Code, pieceText("rust")},
		"c":          {Code, "#include <stdio.h>\n\n/* Says hello. */\nint main(void)\n{\n    printf(\"hello\\n\");\n    return 0;\n}\n"},
		"typescript": {Code, "import { x } from './x'\n\nexport interface A {\n  b: string\n}\n\nexport const f = (a: A): string => {\n  return a.b\n}\n"},
		"diff":       {Code, "diff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -1,3 +1,3 @@\n func f() {\n-\treturn g()\n+\treturn h()\n }\n"},
		"service":    {Logs, pieceText("log") + "\n" + pieceText("error")},
		"level":      {Logs, "INFO starting\nINFO listening on :8080\nERROR could not write order 4711\n  at Store.java:112\n"},
		"syslog":     {Logs, "Feb 27 10:11:12 host sshd[311]: Accepted publickey for root\nFeb 27 10:11:13 host sshd[311]: session opened\n"},
		"go test":    {Logs, "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\texample.com/a\t0.1s\n"},
		"json log":   {Logs, strings.Repeat(`{"time":"2026-03-14T10:00:00Z","level":"info","msg":"served"}`+"\n", 20)},
		"npm":        {Logs, "npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\nnpm ERR! a@1.0.0 build\n"},
		"terminal":   {Logs, strings.Repeat("\x1b[36mCompiling\x1b[0m the module of the store, which takes a while.\nfunc(x);\n", 3)},
		"markdown":   {Docs, guideText},
		"an escape":  {Docs, guideText + "\n\x1b[0m\n"},
		"prose":      {Docs, "The gateway keeps what it was given, and says so in every answer.\nNothing is lost for good when it is cut.\n"},
		"chinese":    {Docs, "# 网关\n\n服务器监听一个端口。\n每个请求都有时限。\n"},
		"french":     {Docs, "La passerelle garde ce qu'on lui confie et le dit dans chaque réponse.\nRien n'est perdu pour de bon.\n"},
		"fences":     {Docs, "# How to build it\n\nRun this first, on any machine:\n\n```sh\nmake build;\nmake test;\nexport X=(1);\nfoo(bar);\nfoo(bar);\nfoo(bar);\n```\n"},
		"rst":        {Docs, "Settings\n========\n\n.. setting:: DEBUG\n\nA boolean that turns on debug mode, and is off unless you say so.\n\n- never use it in production\n"},
	} {
		if got := DetectKind(c.text); got != c.want {
			t.Errorf("%s is %v, want %v", name, got, c.want)
		}
	}
}

func pieceText(name string) string {
	for _, p := range pieces {
		if p.name == name {
			return p.text
		}
	}
	panic("no piece " + name)
}

const guideText = "# Gateway\n\nThis guide describes the gateway and how it is run.\n\n## Installation\n\n1. Get the binary.\n2. Put it on your path.\n\n- one\n- two\n"

func TestParseKind(t *testing.T) {
	for _, k := range []Kind{Code, Logs, Docs} {
		if got, ok := ParseKind(k.String()); !ok || got != k {
			t.Errorf("%v is read as %v", k, got)
		}
	}
	for _, name := range []string{"", "Code", "log", "text"} {
		if k, ok := ParseKind(name); ok {
			t.Errorf("%q is %v", name, k)
		}
	}
}
