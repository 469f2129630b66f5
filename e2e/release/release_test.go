// Package release installs what tools/release built, in each way that users do, and runs it.
package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ctxgate/ctxgate/internal/testkit/gateway"
)

// dist is the directory of a release. Without it the tests build the files of this platform.
var dist = flag.String("dist", "", "the directory of the release to test, relative to this package or absolute")

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	flag.Parse()
	if *dist == "" {
		dir, err := os.MkdirTemp("", "ctxgate-dist-")
		if err == nil {
			defer os.RemoveAll(dir)
			*dist, err = dir, buildHere(dir)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	var err error
	if *dist, err = filepath.Abs(*dist); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// buildHere builds the release of this platform.
func buildHere(dir string) error {
	cmd := exec.Command("go", "run", "./tools/release", "-platforms", "host", "-dist", dir)
	cmd.Dir = filepath.Join("..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// find returns the one file of the release that matches a pattern.
func find(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(*dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d files match %s in %s", len(found), pattern, *dist)
	}
	return found[0]
}

func runIn(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// version is the version of the release, by the name of its npm package.
func version(t *testing.T) string {
	t.Helper()
	file := filepath.Base(find(t, "ctxgate-[0-9]*.tgz"))
	return "v" + strings.TrimSuffix(strings.TrimPrefix(file, "ctxgate-"), ".tgz")
}

// tryProgram runs an installed ctxgate as a new user would: its version, a check, and MCP on stdin and stdout.
func tryProgram(t *testing.T, program string) {
	t.Helper()
	home := t.TempDir()
	env := append(gateway.Environment(home), "PATH="+os.Getenv("PATH"))
	if got, want := runIn(t, home, env, program, "--version"), "ctxgate "+version(t)+" "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH+"\n"; got != want {
		t.Errorf("--version printed %q, not %q", got, want)
	}
	config := filepath.Join(home, "ctxgate.toml")
	if err := os.WriteFile(config, []byte("[[servers]]\nid = \"files\"\nurl = \"http://127.0.0.1:9/mcp\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := runIn(t, home, env, program, "check", "--config", config); got != "" {
		t.Errorf("check printed %s", got)
	}
	var exit *exec.ExitError
	wrong := exec.CommandContext(t.Context(), program, "recover", "prn_nothing", "--config", config)
	wrong.Dir, wrong.Env = home, env
	if err := wrong.Run(); !errors.As(err, &exit) || exit.ExitCode() != 4 {
		t.Errorf("recover of an unknown id: %v, want exit code 4", err)
	}
	cmd := exec.CommandContext(t.Context(), program, "stdio", "--alone", "--config", config)
	cmd.Dir, cmd.Env = home, env
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n")
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), `"protocolVersion":"2025-06-18"`) || !strings.Contains(out.String(), version(t)) {
		t.Errorf("stdio: %v\n%s\n%s", err, &out, &log)
	}
}

func TestArchive(t *testing.T) {
	dir := t.TempDir()
	pattern := fmt.Sprintf("ctxgate_*_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	files := readTarGz(t, find(t, pattern))
	for _, name := range []string{"ctxgate", "LICENSE", "README.md", "CHANGELOG.md"} {
		if files[name] == nil {
			t.Fatalf("the archive has no %s", name)
		}
	}
	runIn(t, dir, os.Environ(), "tar", "xzf", find(t, pattern))
	tryProgram(t, filepath.Join(dir, "ctxgate"))
}

// Every platform's archive has its program, and every program is of its platform.
func TestArchivesOfAllPlatforms(t *testing.T) {
	archives, _ := filepath.Glob(filepath.Join(*dist, "ctxgate_*"))
	for _, file := range archives {
		name := filepath.Base(file)
		switch {
		case strings.HasSuffix(name, ".tar.gz"):
			program := readTarGz(t, file)["ctxgate"]
			magic := "\x7fELF"
			if strings.Contains(name, "_darwin_") {
				magic = "\xcf\xfa\xed\xfe"
			}
			if !bytes.HasPrefix(program, []byte(magic)) || len(program) < 5<<20 {
				t.Errorf("%s has a program of %d bytes that begins with %.4q", name, len(program), program)
			}
		case strings.HasSuffix(name, ".zip"):
			z, err := zip.OpenReader(file)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(z.File, func(f *zip.File) bool { return f.Name == "ctxgate.exe" && f.UncompressedSize64 > 5<<20 })
			if i < 0 || len(z.File) != 4 {
				t.Errorf("%s has %d files, or no program", name, len(z.File))
			}
			z.Close()
		}
	}
}

func readTarGz(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(h.ModTime.Truncate(1e9)) {
			t.Errorf("%s: %s has the owner %d/%d", file, h.Name, h.Uid, h.Gid)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDebianPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("dpkg-deb is not installed: Debian packages are not tested on this machine")
	}
	file := find(t, "ctxgate_*_linux_"+runtime.GOARCH+".deb")
	info := runIn(t, *dist, os.Environ(), "dpkg-deb", "--field", file)
	for _, want := range []string{"Package: ctxgate\n", "Version: " + strings.Replace(version(t)[1:], "-", "~", 1) + "\n", "Architecture: " + runtime.GOARCH + "\n", "Maintainer: ", "Description: "} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	dir := t.TempDir()
	runIn(t, dir, os.Environ(), "dpkg-deb", "--extract", file, dir)
	sums := t.TempDir()
	runIn(t, dir, os.Environ(), "dpkg-deb", "--control", file, sums)
	runIn(t, dir, os.Environ(), "md5sum", "--check", "--quiet", filepath.Join(sums, "md5sums"))
	if _, err := os.Stat(filepath.Join(dir, "usr/share/doc/ctxgate/copyright")); err != nil {
		t.Error(err)
	}
	tryProgram(t, filepath.Join(dir, "usr/bin/ctxgate"))
}

// npm installs the package ctxgate and the one of this platform; npx runs it, and exit codes and stdin pass through.
func TestNPMPackages(t *testing.T) {
	cpu := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if cpu == "" {
		cpu = runtime.GOARCH
	}
	dir := t.TempDir()
	env := append(gateway.Environment(dir), "PATH="+os.Getenv("PATH"), "npm_config_cache="+filepath.Join(dir, "cache"), "npm_config_update_notifier=false")
	if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, env, "npm", "install", "--offline", "--no-audit", "--no-fund", find(t, "ctxgate-[0-9]*.tgz"), find(t, fmt.Sprintf("ctxgate-%s-%s-*.tgz", runtime.GOOS, cpu)))
	tryProgram(t, filepath.Join(dir, "node_modules", ".bin", "ctxgate"))
	if got := runIn(t, dir, env, "npx", "--offline", "--no-install", "ctxgate", "--version"); !strings.HasPrefix(got, "ctxgate "+version(t)+" ") {
		t.Errorf("npx ctxgate --version printed %s", got)
	}
	// Without the program of the platform the message says what to do.
	if err := os.RemoveAll(filepath.Join(dir, "node_modules", "@ctxgate")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", "ctxgate"), "--version")
	cmd.Dir, cmd.Env = dir, env
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--omit=optional") {
		t.Errorf("%v\n%s", err, out)
	}
}

// S18: the bill of materials names what is in the program: its modules, their hashes, and the standard library.
func TestBillOfMaterials(t *testing.T) {
	platform := runtime.GOOS + "_" + runtime.GOARCH
	program := readTarGz(t, find(t, "ctxgate_*_"+platform+".tar.gz"))["ctxgate"]
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	type component struct {
		Name, Version, Purl string
		Hashes              []struct{ Alg, Content string }
	}
	var bill struct {
		BomFormat, SpecVersion, SerialNumber string
		Metadata                             struct{ Component component }
		Components                           []component
	}
	text, err := os.ReadFile(find(t, "ctxgate_*_"+platform+".cdx.json"))
	if err == nil {
		err = json.Unmarshal(text, &bill)
	}
	if err != nil {
		t.Fatal(err)
	}
	main := bill.Metadata.Component
	sum := sha256.Sum256(program)
	if bill.BomFormat != "CycloneDX" || bill.SpecVersion != "1.6" || main.Version != version(t) || len(main.Hashes) != 1 || main.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("%+v", bill)
	}
	if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(bill.SerialNumber) {
		t.Errorf("the serial number %s", bill.SerialNumber)
	}
	var got, want []string
	for _, c := range bill.Components {
		line := c.Name + " " + c.Version
		if c.Purl != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s has the purl %s", c.Name, c.Purl)
		}
		for _, h := range c.Hashes {
			sum, _ := hex.DecodeString(h.Content)
			line += " h1:" + base64.StdEncoding.EncodeToString(sum)
		}
		got = append(got, line)
	}
	want = append(want, "std "+strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range info.Deps {
		want = append(want, m.Path+" "+m.Version+" "+m.Sum)
	}
	if !slices.Equal(got, want) || len(want) < 20 {
		t.Errorf("the bill has\n%s\nthe program\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	t.Logf("%d modules", len(info.Deps))
}

func TestChecksums(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(*dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(*dist, name))
		if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: %v", name, err)
		}
		count++
	}
	if entries, _ := os.ReadDir(*dist); count != len(entries)-1 {
		t.Errorf("%d checksums for %d files", count, len(entries)-1)
	}
}

// S18: the same commit gives the same bytes. `make reproducible` tries it with an empty cache in another directory.
func TestReproducible(t *testing.T) {
	again := t.TempDir()
	if err := buildHere(filepath.Join(again, "dist")); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(again, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() == "checksums.txt" {
			continue // of fewer platforms
		}
		a, errA := os.ReadFile(filepath.Join(*dist, f.Name()))
		b, errB := os.ReadFile(filepath.Join(again, "dist", f.Name()))
		if errA != nil || errB != nil || !bytes.Equal(a, b) {
			t.Errorf("%s differs: %v %v", f.Name(), errA, errB)
		}
	}
}
