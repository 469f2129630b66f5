package config

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/secret"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/upstream"
)

func keysOf(found []Difference) (apply, restart []string) {
	for _, d := range found {
		if d.NeedsRestart {
			restart = append(restart, d.Key)
		} else {
			apply = append(apply, d.Key)
		}
	}
	return apply, restart
}

// Every key of the configuration is compared: each one is changed alone, and only it is reported.
func TestDiffNamesEveryKey(t *testing.T) {
	n := 0
	var walk func(root *Config, table reflect.Value, path string)
	walk = func(root *Config, table reflect.Value, path string) {
		for _, f := range Fields(table.Type()) {
			v, at := f.In(table), childPath(path, f.Key)
			if isTable(f.Type) {
				walk(root, v, at)
				continue
			}
			before := reflect.New(f.Type).Elem()
			before.Set(v)
			old := *root
			v.Set(another(t, v))
			got := Diff(old, *root)
			if len(got) != 1 || got[0].Key != at && !strings.HasPrefix(got[0].Key, at+".") {
				t.Errorf("%s was changed: the difference is %v", at, got)
			}
			v.Set(before)
			n++
		}
	}
	cfg := Default()
	walk(&cfg, reflect.ValueOf(&cfg).Elem(), "")
	if n < 80 {
		t.Errorf("only %d keys", n)
	}
	if got := Diff(cfg, Default()); len(got) != 0 {
		t.Errorf("two that are the same differ in %v", got)
	}
}

// another is a value of the same type that is not v.
func another(t *testing.T, v reflect.Value) reflect.Value {
	t.Helper()
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch {
	case v.Type() == secretType:
		out.Set(reflect.ValueOf(secret.Literal("another")))
	case v.Kind() == reflect.String:
		out.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		out.SetBool(!v.Bool())
	case v.CanInt():
		out.SetInt(v.Int() ^ 1)
	case v.Kind() == reflect.Float64:
		out.SetFloat(v.Float() + 1)
	case v.Kind() == reflect.Slice:
		elem := reflect.New(v.Type().Elem()).Elem()
		if elem.Kind() == reflect.Struct {
			for _, f := range Fields(elem.Type()) {
				if f.Key == "id" || f.Key == "name" {
					f.In(elem).SetString("new")
				}
			}
		}
		out.Set(reflect.Append(v, elem))
	case v.Kind() == reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		for k, e := range v.Seq2() {
			out.SetMapIndex(k, e)
		}
		out.SetMapIndex(reflect.ValueOf("new"), reflect.New(v.Type().Elem()).Elem())
	case v.Kind() == reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
	default:
		t.Fatalf("no other value of a %s", v.Type())
	}
	return out
}

// Keys that need a restart are reported as such, and keep their value until the next start.
func TestDiffNeedsRestart(t *testing.T) {
	old := Default()
	next := old
	next.Front.Listen = "127.0.0.1:1"
	next.Front.HTTP.HeaderTimeout++
	next.Front.HTTP.IdleTimeout++
	next.Front.HTTP.MaxHeaderBytes++
	next.Front.HTTP.DrainGrace++
	next.Front.HTTP.MaxRequestBytes++
	next.State.TTL++
	next.Recall.Enabled = !next.Recall.Enabled
	next.Pruner.Listen, next.Pruner.Backend = "127.0.0.1:2", "rerank"
	next.DataDir = "elsewhere"
	next.Memory.Total++
	next.Log.Level = "DEBUG"
	apply, restart := keysOf(Diff(old, next))
	if want := []string{"http.max_request_bytes", "http.drain_grace", "log_level", "mcp_pruner.backend"}; !slices.Equal(apply, want) {
		t.Errorf("to apply: %v, want %v", apply, want)
	}
	want := []string{
		"listen", "http.max_header_bytes", "http.header_timeout", "http.idle_timeout", "memory_budget", "data_dir", "recall.enabled", "state.ttl", "mcp_pruner.listen",
	}
	if !slices.Equal(restart, want) {
		t.Errorf("need a restart: %v, want %v", restart, want)
	}
	wanted := next
	next.KeepUntilRestart(old)
	if got, rest := keysOf(Diff(old, next)); !slices.Equal(got, apply) || rest != nil {
		t.Errorf("after keeping what needs a restart: %v and %v", got, rest)
	}
	if got, rest := keysOf(Diff(next, wanted)); got != nil || !slices.Equal(rest, restart) {
		t.Errorf("what was kept: %v and %v", got, rest)
	}
}

// Server entries are named by their ids; secrets are compared by value and never printed.
func TestDiffOfServersAndSecrets(t *testing.T) {
	server := func(id, token string) upstream.ServerConfig {
		return upstream.ServerConfig{ID: id, URL: "http://x", Headers: map[string]secret.Text{"Authorization": secret.Literal(token)}}
	}
	with := func(servers ...upstream.ServerConfig) Config {
		c := Default()
		c.Upstream.Servers = servers
		return c
	}
	for name, tt := range map[string]struct {
		old, next Config
		want      []string
	}{
		"same":      {with(server("a", "1"), server("b", "2")), with(server("a", "1"), server("b", "2")), nil},
		"secret":    {with(server("a", "1"), server("b", "hush")), with(server("a", "1"), server("b", "shh")), []string{"servers.b"}},
		"added":     {with(server("a", "1")), with(server("b", "1"), server("a", "1")), []string{"servers.b"}},
		"removed":   {with(server("a", "1"), server("b", "2")), with(server("b", "2")), []string{"servers.a"}},
		"order":     {with(server("a", "1"), server("b", "2")), with(server("b", "2"), server("a", "1")), []string{"servers"}},
		"from none": {Default(), with(server("a", "1")), []string{"servers.a"}},
	} {
		got := Diff(tt.old, tt.next)
		if apply, restart := keysOf(got); !slices.Equal(apply, tt.want) || restart != nil {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
		if text := fmt.Sprintf("%+v", got); strings.Contains(text, "hush") {
			t.Errorf("%s prints a secret: %s", name, text)
		}
	}
	env, literal := Default(), Default()
	env.Auth.Token, _ = secret.Parse("env:T").Resolve(func(string) (string, bool) { return "same", true })
	literal.Auth.Token = secret.Literal("same")
	if got := Diff(env, literal); len(got) != 0 {
		t.Errorf("the same secret from elsewhere: %v", got)
	}
	policies := Default()
	policies.Hub.MaxDepth = int(unit.Bytes(math.MaxInt8))
	if got, _ := keysOf(Diff(Default(), policies)); !slices.Equal(got, []string{"max_depth"}) {
		t.Errorf("got %v", got)
	}
}
