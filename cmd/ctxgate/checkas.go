package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ctxgate/ctxgate/access"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/hub/catalog"
	"github.com/ctxgate/ctxgate/jsonscan"
	"github.com/ctxgate/ctxgate/upstream"
)

// asFlags describe a caller, and what it wants to use.
type asFlags struct {
	subject, issuer, claims string
	roles                   []string
	target                  access.Target
	arguments, annotations  string
	asJSON                  bool
}

func addAsFlags(flags *pflag.FlagSet) *asFlags {
	f := &asFlags{}
	flags.StringVar(&f.subject, "as", "", "explain what the access rules decide for `SUBJECT@TENANT`")
	flags.StringVar(&f.issuer, "issuer", "", "with --as: who vouches for the caller")
	flags.StringSliceVar(&f.roles, "roles", nil, "with --as: the caller's roles, separated by commas")
	flags.StringVar(&f.claims, "claims", "", "with --as: the claims of the caller's token, a JSON object")
	flags.StringVar(&f.target.Server, "server", "", "with --as: the server; --tool and --prompt may name it too, as clients do")
	flags.StringVar(&f.target.Tool, "tool", "", "with --as: the tool")
	flags.StringVar(&f.target.Resource, "resource", "", "with --as: the URI of the resource")
	flags.StringVar(&f.target.Prompt, "prompt", "", "with --as: the prompt")
	flags.StringVar(&f.target.Model, "model", "", "with --as: the model")
	flags.StringVar(&f.target.Method, "method", "", "with --as: the method, if it is not the usual one of what is used")
	flags.StringVar(&f.arguments, "arguments", "", "with --as: the arguments of the call, a JSON object; without them it is said what depends on them")
	flags.StringVar(&f.annotations, "annotations", "{}", "with --as: the annotations of the tool, a JSON object")
	flags.BoolVar(&f.asJSON, "json", false, "with --as: print JSON")
	return f
}

// check refuses flags that have no effect.
func (f *asFlags) check(flags *pflag.FlagSet) error {
	if f.subject != "" {
		return nil
	}
	for _, name := range []string{"as", "issuer", "roles", "claims", "server", "tool", "resource", "prompt", "model", "method", "arguments", "annotations", "json"} {
		if flags.Changed(name) {
			return fmt.Errorf("--%s needs --as SUBJECT@TENANT", name)
		}
	}
	return nil
}

// explain prints what the access rules decide.
func (f *asFlags) explain(cmd *cobra.Command, cfg config.Config) error {
	rules, err := access.New(cfg.Access)
	if err != nil {
		return err
	}
	caller, err := f.caller()
	if err != nil {
		return err
	}
	target, err := f.completeTarget(cfg)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if target.Method == "" {
		return f.explainCaller(w, cfg, rules, caller)
	}
	x := rules.Explain(caller, target)
	if f.asJSON {
		return printJSON(w, x)
	}
	printSteps(w, x.Steps)
	effect := string(x.Effect)
	if effect == "" {
		effect = "undecided"
	}
	fmt.Fprintf(w, "%s: %s\n", effect, x.Reason)
	for _, line := range x.Redaction {
		fmt.Fprintln(w, "  takes out", line)
	}
	if x.IsListed {
		fmt.Fprintln(w, "It is shown in lists.")
	} else {
		fmt.Fprintln(w, "It is not shown in lists.")
	}
	return nil
}

// explainCaller prints what the rules make of a caller, and which servers it may use.
func (f *asFlags) explainCaller(w io.Writer, cfg config.Config, rules *access.Rules, caller auth.Caller) error {
	var out struct {
		Steps   []access.Step   `json:"rules"`
		Default string          `json:"default"`
		Servers map[string]bool `json:"servers"`
	}
	out.Steps, out.Default, out.Servers = rules.ExplainCaller(caller), cfg.Access.Default, map[string]bool{}
	for _, s := range cfg.Upstream.Servers {
		out.Servers[s.ID] = rules.MayUseServer(caller, s.ID)
	}
	if f.asJSON {
		return printJSON(w, out)
	}
	printSteps(w, out.Steps)
	fmt.Fprintf(w, "default: %s\n", out.Default)
	for _, s := range cfg.Upstream.Servers {
		may := "may use something"
		if !out.Servers[s.ID] {
			may = "may use nothing"
		}
		fmt.Fprintf(w, "server %s: %s\n", s.ID, may)
	}
	return nil
}

func (f *asFlags) caller() (auth.Caller, error) {
	id := auth.Identity{Subject: f.subject, Issuer: f.issuer, Roles: f.roles}
	if i := strings.LastIndexByte(f.subject, '@'); i >= 0 { // a subject may be an address
		id.Subject, id.Tenant = f.subject[:i], f.subject[i+1:]
	}
	if f.claims != "" {
		d := json.NewDecoder(strings.NewReader(f.claims))
		d.UseNumber()
		if err := d.Decode(&id.Claims); err != nil {
			return auth.Caller{}, fmt.Errorf("--claims: want a JSON object: %w", err)
		}
	}
	caller, err := auth.Hypothetical(id)
	if err != nil {
		return auth.Caller{}, fmt.Errorf("--as: %w", err)
	}
	return caller, nil
}

// completeTarget is the target of the flags, with the server's own names and the usual method.
func (f *asFlags) completeTarget(cfg config.Config) (access.Target, error) {
	t := f.target
	isServer := func(id string) bool {
		return slices.ContainsFunc(cfg.Upstream.Servers, func(s upstream.ServerConfig) bool { return s.ID == id })
	}
	for _, name := range []*string{&t.Tool, &t.Prompt} {
		if server, own, ok := catalog.SplitName(*name, cfg.Hub.Naming.Separator, isServer); ok && t.Server == "" {
			t.Server, *name = server, own
		}
	}
	count := 0
	for _, usual := range []struct{ name, method string }{{t.Tool, "tools/call"}, {t.Resource, "resources/read"}, {t.Prompt, "prompts/get"}, {t.Model, access.MethodModel}} {
		if usual.name == "" {
			continue
		}
		count++
		if f.target.Method == "" {
			t.Method = usual.method
		}
	}
	if count > 1 {
		return t, errors.New("want one of --tool, --resource, --prompt and --model")
	}
	for _, object := range []struct {
		flag, text string
		to         *[]byte
	}{{"arguments", f.arguments, &t.Arguments}, {"annotations", f.annotations, &t.Annotations}} {
		if object.text == "" {
			continue
		}
		if _, err := jsonscan.FieldsOf([]byte(object.text)); err != nil || !json.Valid([]byte(object.text)) || strings.TrimSpace(object.text)[0] != '{' {
			return t, fmt.Errorf("--%s: want a JSON object", object.flag)
		}
		*object.to = []byte(strings.TrimSpace(object.text))
	}
	return t, nil
}

func printSteps(w io.Writer, steps []access.Step) {
	for _, s := range steps {
		name := ""
		if s.Name != "" {
			name = " (" + s.Name + ")"
		}
		fmt.Fprintf(w, "rule %d%s: %s if %s\n", s.Rule, name, s.Effect, strings.Join(strings.Fields(s.When), " "))
		for _, v := range s.Values {
			fmt.Fprintf(w, "    %s\n", v)
		}
		fmt.Fprintf(w, "  %s", s.Outcome)
		if s.Error != "" {
			fmt.Fprintf(w, ": %s", s.Error)
		}
		fmt.Fprintln(w)
	}
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
