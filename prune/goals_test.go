package prune

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// stays reports whether the line with a text stays if 90 % may go.
func stays(t *testing.T, text, goal string, kind Kind, line string) bool {
	t.Helper()
	d, err := Score(context.Background(), text, goal, kind)
	if err != nil {
		t.Fatal(err)
	}
	kept := keptOf(d.LineCount(), d.Cut(Budget{MaxPruneRatio: .9}))
	at := slices.IndexFunc(strings.Split(text, "\n"), func(l string) bool { return strings.Contains(l, line) })
	if at < 0 {
		t.Fatalf("%q is not in the text", line)
	}
	return kept[at]
}

// steps are lines of a service without failures, each about something else.
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

// stepLog hides the steps among irrelevant lines.
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

// stepCode has a function for each of eight subjects, in English.
func stepCode() string {
	var b strings.Builder
	b.WriteString("package app\n\n")
	for _, s := range []string{"openConnection dial", "loadSettings decode", "checkPassword compare", "sendRequest post", "freeMemory release", "sortColumns arrange", "parseHeader scan", "rotateCertificate renew"} {
		name, verb, _ := strings.Cut(s, " ")
		fmt.Fprintf(&b, "func %s(a int) error {\n\tfirst := a + 1\n\tsecond := first * 2\n\tthird := second - a\n\tif third > 9 {\n\t\treturn nil\n\t}\n\t_ = %s_%s(third)\n\treturn nil\n}\n\n", name, verb, strings.ToLower(name))
	}
	return b.String()
}

// P+1: goals in English, French and Chinese find the function in English code.
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
