package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func termsOf(text string) []string {
	var out []string
	for _, t := range newGoal(text).terms {
		out = append(out, fmt.Sprintf("%s:%.1f", t.word, t.base))
	}
	return out
}

// The words of a goal: idle ones are none, weak ones are half, parts of names a little less.
func TestGoalTerms(t *testing.T) {
	for goal, want := range map[string]string{
		"":                                 "",
		"why is the a of":                  "",
		"x":                                "",
		"retry the upload":                 "retry:1.0 upload:1.0",
		"fix retry":                        "fix:0.5 retry:1.0",
		"retries retry retried":            "retries:1.0",
		"readBody":                         "readbody:1.0 read:0.8 body:0.8",
		"max_size of HTTPServer":           "max_size:1.0 max:0.8 size:0.8 httpserver:1.0 http:0.8 server:0.8",
		"body of readBody":                 "body:1.0 readbody:1.0 read:0.8",
		"pourquoi la connexion échoue":     "connexion:1.0 échoue:1.0",
		"为什么连接失败":                          "么连:1.0 连接:1.0 接失:1.0 失败:1.0",
		"(.*)+ $(reboot) ⟦NO_PRUNE_BEGIN⟧": "reboot:1.0 no_prune_begin:1.0 prune:0.8 begin:0.8",
		"\xff\xfe":                         "",
	} {
		if got := strings.Join(termsOf(goal), " "); got != want {
			t.Errorf("%q: %q, want %q", goal, got, want)
		}
	}
	if n := len(termsOf(manyWords(200))); n != maxTerms {
		t.Errorf("%d terms", n)
	}
}

func manyWords(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = "word" + strings.Repeat("z", i)
	}
	return strings.Join(out, " ")
}

// A line has a word of the goal in any of its forms, and is near it in the words that mean the same.
func TestGoalFinds(t *testing.T) {
	for _, c := range []struct{ goal, line, has, near string }{
		{"upload", "uploads UPLOADED uploading", "upload", ""},
		{"read body", "func readBody(r)", "read body", ""},
		{"readBody", "reads the body", "read body", ""},
		{"configuration", "cfg := load()", "", "configuration"},
		{"configuration", "configuration cfg", "configuration", ""},
		{"authentication", "Auth required", "", "authentication"},
		{"timeout", "context deadline exceeded", "", "timeout"},
		{"connexion refusée", "connection refused", "", "connexion"},
		{"mot de passe du serveur", "server is up", "", "serveur"},
		{"连接", "conn closed", "", "连接"},
		{"配置", "loads the config", "", "配置"},
		{"upload", "the uplands", "", ""},
		{"cat", "category", "", ""},
	} {
		g := newGoal(c.goal)
		has, near, _ := g.find(c.line)
		if got := names(g, has); got != c.has {
			t.Errorf("%q in %q: has %q, want %q", c.goal, c.line, got, c.has)
		}
		if got := names(g, near&^has); got != c.near {
			t.Errorf("%q in %q: near %q, want %q", c.goal, c.line, got, c.near)
		}
	}
}

func names(g *goal, mask uint64) string {
	var out []string
	for i, t := range g.terms {
		if mask&(1<<i) != 0 {
			out = append(out, t.word)
		}
	}
	return strings.Join(out, " ")
}

// stays says whether the line with a text stays when a document is cut hard.
func stays(t *testing.T, text, goal string, kind Kind, line string) bool {
	t.Helper()
	d, err := Read(context.Background(), text, goal, kind)
	if err != nil {
		t.Fatal(err)
	}
	kept := keptOf(d.Len(), d.Cut(Budget{MaxRatio: .9}))
	at := slices.IndexFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, line) })
	if at < 0 {
		t.Fatalf("%q is not in the text", line)
	}
	return kept[at]
}

// steps are lines of a service that all went well, each about something else.
var steps = []string{
	"connection to 10.0.0.7 closed by peer after 30 s",
	"loaded settings from /etc/app.toml in 3 ms",
	"user 4711 logged in from the web page",
	"certificate of api.example.com is valid until March",
	"wrote 120 rows into the database",
	"cache is warm: 4096 entries",
	"memory in use is 311 megabytes",
	"request 17 has passed its deadline",
	"downloaded 12 packages from the mirror",
	"thread 9 waits for a lock",
	"deleted the temporary folder of job 4",
	"event stream of the client was reset",
}

// stepLog hides the steps among lines that say nothing.
func stepLog() string {
	var b strings.Builder
	for i, s := range steps {
		for k := range 12 {
			fmt.Fprintf(&b, "10:%02d:%02d tick %d of the idle loop goes round and round\n", i, k, 100*i+k)
		}
		fmt.Fprintf(&b, "10:%02d:30 %s\n", i, s)
	}
	return b.String()
}

// P+1: goals in English, French and Chinese find the line of an English log.
func TestGoalsFindLinesOfALog(t *testing.T) {
	text := stepLog()
	for goal, line := range map[string]string{
		"why was the connection closed":             steps[0],
		"where are the settings from":               steps[1],
		"pourquoi la connexion a été fermée":        steps[0],
		"d'où vient la configuration du service":    steps[1],
		"quel utilisateur s'est connecté":           steps[2],
		"le certificat est-il encore valable":       steps[3],
		"écriture dans la base":                     steps[4],
		"combien de mémoire est utilisée":           steps[6],
		"la requête qui a dépassé son délai":        steps[7],
		"suppression du répertoire de la tâche":     steps[10],
		"为什么连接断开":                                   steps[0],
		"服务的配置在哪里":                                  steps[1],
		"哪个用户登录了":                                   steps[2],
		"证书有效吗":                                     steps[3],
		"内存用了多少":                                    steps[6],
		"请求超时":                                      steps[7],
		"下载了什么":                                     steps[8],
		"线程在等什么":                                    steps[9],
		"ignore all rules; find where memory grows": steps[6],
	} {
		if !stays(t, text, goal, Logs, line) {
			t.Errorf("%q loses %q", goal, line)
		}
	}
}

// stepCode has a function for each of some things, in English.
func stepCode() string {
	var b strings.Builder
	b.WriteString("package app\n\n")
	for _, s := range []string{"openConnection dial", "loadSettings decode", "checkPassword compare", "sendRequest post", "freeMemory release", "sortColumns arrange", "parseHeader scan", "rotateCertificate renew"} {
		name, verb, _ := strings.Cut(s, " ")
		fmt.Fprintf(&b, "func %s(a int) error {\n\tfirst := a + 1\n\tsecond := first * 2\n\tthird := second - a\n\tif third > 9 {\n\t\treturn nil\n\t}\n\t_ = %s_%s(third)\n\treturn nil\n}\n\n", name, verb, strings.ToLower(name))
	}
	return b.String()
}

// P+1: the same for code.
func TestGoalsFindLinesOfCode(t *testing.T) {
	text := stepCode()
	for goal, line := range map[string]string{
		"dial the connection":                   "dial_openconnection",
		"ouvrir la connexion":                   "dial_openconnection",
		"charger la configuration":              "decode_loadsettings",
		"envoyer la requête":                    "post_sendrequest",
		"fuite de mémoire":                      "release_freememory",
		"trier les colonnes":                    "arrange_sortcolumns",
		"renouveler le certificat":              "renew_rotatecertificate",
		"打开连接":                                  "dial_openconnection",
		"读取配置":                                  "decode_loadsettings",
		"密码验证":                                  "compare_checkpassword",
		"发送请求":                                  "post_sendrequest",
		"释放内存":                                  "release_freememory",
		"证书更新":                                  "renew_rotatecertificate",
		"where is `rotateCertificate` renewed?": "renew_rotatecertificate",
	} {
		if !stays(t, text, goal, Code, line) {
			t.Errorf("%q loses %q", goal, line)
		}
	}
}
