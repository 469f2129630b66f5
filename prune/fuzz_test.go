package prune

import (
	"strings"
	"testing"
)

// FuzzCut checks the laws for any text, goal, kind and budget.
func FuzzCut(f *testing.F) {
	var all []string
	for _, p := range pieces {
		if len(p.text) < 500 {
			f.Add(p.text, "why does read fail", uint8(len(all)), .7, 2)
		}
		all = append(all, p.text)
	}
	mixed := strings.Join(all, "\n")
	for k := range kindNames {
		f.Add(mixed, "pourquoi la requête échoue", uint8(k), .85, 20)
		f.Add(strings.ReplaceAll(mixed, "\n", "\r\n"), "连接失败 open_store", uint8(k), .5, 0)
	}
	f.Add("@@ -1,999999 +1,999999 @@\n+a\n@@ -1 +1 @@\n```\n@@ -0,0 +1 @@", "a", uint8(Docs), 1., 0)
	f.Fuzz(func(t *testing.T, text, goal string, kind uint8, ratio float64, least int) {
		if len(text) > 1<<16 || len(goal) > 1<<12 {
			return
		}
		c := cutting{text, goal, Kind(kind) % Kind(len(kindNames)), Budget{ratio, least}}
		checkLaws(t, c)
		chunksAreSound(t, c.read(t))
		DetectKind(text)
	})
}
