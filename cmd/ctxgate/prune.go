package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ctxgate/ctxgate/app"
	"github.com/ctxgate/ctxgate/auth"
	"github.com/ctxgate/ctxgate/config"
	"github.com/ctxgate/ctxgate/internal/unit"
	"github.com/ctxgate/ctxgate/prune"
	"github.com/ctxgate/ctxgate/prunerd"
)

// pruneFlags are how a text is to be pruned, and what is to be told of it.
type pruneFlags struct {
	goal, kind                      string
	budget                          prune.Budget
	json, stats, number, explain    bool
	noMarkers, noStore, bench, kept bool
}

func pruneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prune [FILE]",
		Short: "Make a text shorter for a goal: a filter for pipes",
		Long: `Read a text from FILE or stdin and print the lines of it that matter for a goal. What is left
out is marked, and kept, so that it can be read back: 'ctxgate recover' takes the prune_id
of a marker. Without a goal the text's own structure decides: headings, definitions,
errors and what led to them.

Lines stay as they are and in their order, and never are more left out than --ratio and
--min-keep allow; what must not be missing (imports, signatures, headings, errors) stays
even then. A text from which nothing is left out comes out byte for byte. So does all of
it when the original cannot be kept, and when it is binary; stderr says so.

Everything happens on this machine. With --no-store nothing is kept, no config file is
read, and what is left out cannot be read back.

--bench answers requests of a benchmark, a JSON object a line, with the score of every
line of a text, or with --kept with the lines that stay.`,
		Example: `  go test ./... 2>&1 | ctxgate prune --type logs --goal "why does TestX fail"
  ctxgate prune --goal "where is the retry limit set" --ratio 0.85 --number server.go`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("prune takes one file, or stdin")
			}
			return nil
		},
	}
	path := configFlag(cmd)
	var f pruneFlags
	flags := cmd.Flags()
	flags.StringVar(&f.goal, "goal", "", "what the text is read for, in words")
	flags.StringVar(&f.kind, "type", "auto", "what the text is: code, logs or docs; auto tells by the name of FILE, else by the text")
	flags.Float64Var(&f.budget.MaxRatio, "ratio", 0.7, "the most lines to leave out, of all lines: 0 to 1")
	flags.IntVar(&f.budget.MinKeep, "min-keep", 20, "the fewest lines to keep")
	flags.BoolVarP(&f.number, "number", "n", false, "put its number before each line")
	flags.BoolVar(&f.noMarkers, "no-markers", false, "leave no mark where lines are left out")
	flags.BoolVar(&f.noStore, "no-store", false, "do not keep the original; what is left out cannot be read back")
	flags.BoolVar(&f.json, "json", false, "print what prune_text answers: text, annotations and statistics in one JSON object")
	flags.BoolVar(&f.stats, "stats", false, "tell on stderr how much was left out")
	flags.BoolVar(&f.explain, "explain", false, "print for every line whether it stays and how it came to its score, not the text")
	flags.BoolVar(&f.bench, "bench", false, "answer a benchmark's requests, one JSON object a line")
	flags.BoolVar(&f.kept, "kept", false, "with --bench: the lines that stay, not scores")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions([]string{"auto", "code", "logs", "docs"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.check(args); err != nil {
			return &exitError{exitUsage, err}
		}
		err := f.run(cmd, *path, args)
		if errors.Is(err, syscall.EPIPE) {
			return nil // whoever read the output has enough of it
		}
		return err
	}
	return cmd
}

// check is what the flags themselves cannot tell.
func (f *pruneFlags) check(args []string) error {
	_, known := prune.ParseKind(f.kind)
	switch {
	case !known && f.kind != "auto":
		return fmt.Errorf("--type: %q is not one of auto, code, logs, docs", f.kind)
	case !(f.budget.MaxRatio >= 0 && f.budget.MaxRatio <= 1): // which NaN is not
		return errors.New("--ratio: must be a number from 0 to 1")
	case f.budget.MinKeep < 0:
		return errors.New("--min-keep: must not be negative")
	case f.bench && len(args) > 0:
		return errors.New("--bench reads requests from stdin, and takes no file")
	case f.kept && !f.bench:
		return errors.New("--kept goes with --bench")
	}
	return nil
}

// run is the straight line of one text: what is configured, the text, its cut, the original kept,
// the answer. A configuration with a mistake in it is told as every command does, but the text,
// which nobody may have another copy of, comes out whole first.
func (f *pruneFlags) run(cmd *cobra.Command, path string, args []string) error {
	if f.bench {
		return await(cmd.Context(), func() error { return f.answer(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout()) })
	}
	var cfg config.Config
	var mistake error
	if !f.noStore {
		var loaded config.Loaded
		loaded, mistake = load(path, true)
		cfg = loaded.Config
	}
	file := "-"
	if len(args) > 0 {
		file = args[0]
	}
	text, err := readInput(cmd, file)
	if err != nil {
		return err
	}
	began := time.Now()
	p := pruning{text: text, id: "-", lines: strings.Count(text, "\n") + 1}
	switch {
	case mistake != nil:
		p.whole(warnUnkept)
	case strings.IndexByte(text, 0) >= 0:
		p.whole(warnBinary)
		warn(cmd.ErrOrStderr(), []string{"the input is binary, so nothing is left out of it"})
	default:
		err = f.prune(cmd, &p, kindOf(f.kind, file, text), cfg)
	}
	if err == nil {
		err = f.print(cmd, &p, time.Since(began))
	}
	return errors.Join(err, mistake)
}

// prune decides the cut and has the original kept. Only a signal is an error: anything else costs
// the saving, not the text.
func (f *pruneFlags) prune(cmd *cobra.Command, p *pruning, kind prune.Kind, cfg config.Config) error {
	ctx := cmd.Context()
	if f.budget.MinKeep > p.lines {
		p.whole(warnConstraints) // as prune_text has it; here it is nothing to speak of
	} else if err := p.cut(ctx, f, kind); err != nil {
		if ctx.Err() != nil {
			return errInterrupted
		}
		p.whole(warnInternal)
		warn(cmd.ErrOrStderr(), []string{"nothing is left out, for a mistake of ours: " + err.Error()})
	}
	if f.noStore || f.explain || len(p.blocks) == 0 && !f.json {
		return nil
	}
	id, err := keep(ctx, cfg, p.text)
	if ctx.Err() != nil {
		return errInterrupted
	}
	if id != "" {
		p.id = id
	}
	if err != nil {
		p.whole(warnUnkept)
		warn(cmd.ErrOrStderr(), []string{"the original cannot be kept, so nothing is left out of it (--no-store does without): " + err.Error()})
	}
	return nil
}

// pruning is what becomes of one text.
type pruning struct {
	text, id string
	lines    int
	doc      *prune.Doc
	blocks   []prune.Block // what is left out
	fallback bool          // the text comes out as it came, for a reason
	warnings []string
}

// The reasons for which a text comes out whole, as prune_text names them.
const (
	warnConstraints = "constraints_unmet"
	warnInternal    = "internal_error"
	warnUnkept      = "recovery_unavailable"
	warnBinary      = "binary_input" // which no text of JSON is
)

func (p *pruning) whole(why string) {
	p.doc, p.blocks, p.fallback, p.warnings = nil, nil, true, append(p.warnings, why)
}

func (p *pruning) cut(ctx context.Context, f *pruneFlags, kind prune.Kind) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v\n%s", v, debug.Stack())
		}
	}()
	if p.doc, err = prune.Read(ctx, p.text, f.goal, kind); err != nil {
		return err
	}
	p.blocks = p.doc.Cut(f.budget)
	return nil
}

// kept is how many lines stay.
func (p *pruning) kept() int {
	n := p.lines
	for _, b := range p.blocks {
		n -= b.Lines()
	}
	return n
}

// shown is the text that comes out.
func (p *pruning) shown(f *pruneFlags) []byte {
	return p.doc.Append(nil, p.blocks, prune.Style{ID: p.id, Number: f.number, Markers: !f.noMarkers})
}

// print writes what comes out, and what is to be told of it.
func (f *pruneFlags) print(cmd *cobra.Command, p *pruning, took time.Duration) error {
	size, err := f.write(cmd.OutOrStdout(), p, took)
	if f.stats && err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "ctxgate: kept %d of %d lines, %d → %d bytes, %d ms\n", p.kept(), p.lines, len(p.text), size, took.Milliseconds())
	}
	return err
}

func (f *pruneFlags) write(w io.Writer, p *pruning, took time.Duration) (size int, err error) {
	switch {
	case f.explain && p.doc != nil:
		return len(p.text), explain(w, p)
	case f.json:
		return writeDocument(w, p, f, took)
	case p.doc == nil || len(p.blocks) == 0 && !f.number:
		return io.WriteString(w, p.text)
	}
	out := p.shown(f)
	if f.number && strings.HasSuffix(p.text, "\n") { // which ends a line and begins none, to who reads
		out = out[:len(out)-len(fmt.Sprintf("%d│ ", p.lines))]
	}
	return w.Write(out)
}

// patience is how long the original of a filter may take to be kept: no client waits, and a log of
// hundreds of megabytes takes its time.
const patience = unit.Duration(10 * time.Minute)

// keep puts a text where `ctxgate recover` looks for it, as the pruner's own: who may use that may read
// it back. An id may come with an error.
func keep(ctx context.Context, cfg config.Config, text string) (id string, err error) {
	if cfg.State.Driver == "memory" {
		return "", errors.New(`the memory of this process (state.driver = "memory") ends with it`)
	}
	cfg.Recall.KeepTimeout = max(cfg.Recall.KeepTimeout, patience)
	vault, err := app.OpenVault(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, vault.Close()) }()
	return vault.Recall.Keep(ctx, auth.DefaultTenant, text, prunerd.Origin)
}

// kindOf is what a text is taken for: what was asked for, what the name of its file tells for
// sure (a .txt may be anything), or what it looks like.
func kindOf(asked, file, text string) prune.Kind {
	if kind, ok := prune.ParseKind(asked); ok {
		return kind
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".log":
		return prune.Logs
	case ".md", ".mdx", ".markdown", ".rst", ".adoc", ".asciidoc", ".org", ".tex":
		return prune.Docs
	case ".go", ".py", ".pyi", ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".rs", ".java", ".kt", ".scala", ".groovy", ".c", ".h", ".cc", ".cpp",
		".cxx", ".hh", ".hpp", ".m", ".mm", ".cs", ".fs", ".swift", ".rb", ".php", ".pl", ".lua", ".ex", ".exs", ".erl", ".hs", ".ml", ".clj", ".dart",
		".jl", ".r", ".sh", ".bash", ".zsh", ".ps1", ".sql", ".proto", ".vue", ".svelte", ".css", ".scss", ".zig", ".nim", ".tf":
		return prune.Code
	}
	return prune.Guess(text)
}

var errInterrupted = errors.New("interrupted")

// await does some work that reads stdin, which cannot be stopped, only left.
func await(ctx context.Context, work func() error) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errInterrupted
	}
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
