package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v3"
)

// releaseConfig is what is used of .goreleaser.yaml. A key that is not here is an error: this program would build
// something else than GoReleaser.
type releaseConfig struct {
	Version     int    `yaml:"version"`
	ProjectName string `yaml:"project_name"`
	Builds      []struct {
		ID           string   `yaml:"id"`
		Main         string   `yaml:"main"`
		Binary       string   `yaml:"binary"`
		Env          []string `yaml:"env"`
		Flags        []string `yaml:"flags"`
		LDFlags      []string `yaml:"ldflags"`
		ModTimestamp string   `yaml:"mod_timestamp"`
		GOOS         []string `yaml:"goos"`
		GOARCH       []string `yaml:"goarch"`
	} `yaml:"builds"`
	Archives []struct {
		IDs             []string `yaml:"ids"`
		NameTemplate    string   `yaml:"name_template"`
		Formats         []string `yaml:"formats"`
		FormatOverrides []struct {
			GOOS    string   `yaml:"goos"`
			Formats []string `yaml:"formats"`
		} `yaml:"format_overrides"`
		BuildsInfo fileInfo `yaml:"builds_info"`
		Files      []struct {
			Src  string   `yaml:"src"`
			Info fileInfo `yaml:"info"`
		} `yaml:"files"`
	} `yaml:"archives"`
	NFPMs []struct {
		ID               string   `yaml:"id"`
		IDs              []string `yaml:"ids"`
		PackageName      string   `yaml:"package_name"`
		FileNameTemplate string   `yaml:"file_name_template"`
		Formats          []string `yaml:"formats"`
		Vendor           string   `yaml:"vendor"`
		Maintainer       string   `yaml:"maintainer"`
		Homepage         string   `yaml:"homepage"`
		Description      string   `yaml:"description"`
		License          string   `yaml:"license"`
		Section          string   `yaml:"section"`
		Priority         string   `yaml:"priority"`
		BinDir           string   `yaml:"bindir"`
		MTime            string   `yaml:"mtime"`
		Contents         []struct {
			Src string `yaml:"src"`
			Dst string `yaml:"dst"`
		} `yaml:"contents"`
	} `yaml:"nfpms"`
	Checksum struct {
		NameTemplate string `yaml:"name_template"`
		Algorithm    string `yaml:"algorithm"`
	} `yaml:"checksum"`
	Snapshot struct {
		VersionTemplate string `yaml:"version_template"`
	} `yaml:"snapshot"`
	Changelog struct {
		Disable bool `yaml:"disable"`
	} `yaml:"changelog"`
	Release struct {
		Disable bool `yaml:"disable"`
	} `yaml:"release"`
}

type fileInfo struct {
	Owner string `yaml:"owner"`
	Group string `yaml:"group"`
	Mode  int64  `yaml:"mode"`
	MTime string `yaml:"mtime"`
}

func readConfig(path string) (*releaseConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var c releaseConfig
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(c.Builds) != 1 || len(c.Archives) != 1 || len(c.NFPMs) != 1 {
		return nil, fmt.Errorf("%s: this program knows one build, one kind of archive and one kind of package", path)
	}
	return &c, nil
}

// target is a platform, as Go names it.
type target struct{ os, arch string }

func (t target) binary() string {
	if t.os == "windows" {
		return "ctxgate.exe"
	}
	return "ctxgate"
}

func (c *releaseConfig) targets() []target {
	var out []target
	for _, goos := range c.Builds[0].GOOS {
		for _, arch := range c.Builds[0].GOARCH {
			out = append(out, target{goos, arch})
		}
	}
	return out
}

// commit is what is built.
type commit struct {
	hash string
	at   time.Time
	tag  string // the last one, without its v
}

func readCommit(ctx context.Context) (commit, error) {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	line, err := git("log", "-1", "--format=%H %ct")
	if err != nil { // a copy of the sources without its history
		fmt.Fprintln(os.Stderr, "release: git does not know the commit, so the files have none, and the time of the oldest zip archive:", err)
		line = strings.Repeat("0", 40) + " " + strconv.Itoa(315532800)
	}
	hash, seconds, _ := strings.Cut(line, " ")
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return commit{}, fmt.Errorf("reading the time of the commit: %w", err)
	}
	c := commit{hash: hash, at: time.Unix(at, 0).UTC(), tag: "0.0.0"}
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match", "v*"); err == nil {
		c.tag = strings.TrimPrefix(tag, "v")
	}
	return c, nil
}

// names fills in the templates.
type names struct {
	commit
	fields  map[string]any
	version string
}

func (c *releaseConfig) newNames(from commit, version string) (names, error) {
	n := names{commit: from, fields: map[string]any{
		"ProjectName": c.ProjectName, "Version": from.tag, "FullCommit": from.hash, "ShortCommit": from.hash[:7],
		"CommitDate": from.at.Format(time.RFC3339), "CommitTimestamp": from.at.Unix(),
		"PackageName": c.NFPMs[0].PackageName,
	}}
	if version == "" {
		var err error
		if version, err = n.fill(c.Snapshot.VersionTemplate, target{}); err != nil {
			return n, err
		}
	}
	n.version = version
	n.fields["Version"] = version
	return n, nil
}

func (n names) fill(text string, t target) (string, error) {
	tmpl, err := template.New("").Option("missingkey=error").Funcs(template.FuncMap{"incpatch": incrementPatch}).Parse(text)
	if err != nil {
		return "", err
	}
	fields := map[string]any{"Os": t.os, "Arch": t.arch}
	for k, v := range n.fields {
		fields[k] = v
	}
	var b strings.Builder
	err = tmpl.Execute(&b, fields)
	return b.String(), err
}

func incrementPatch(version string) (string, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) != 3 {
		return "", fmt.Errorf("%q is not a version", version)
	}
	digits, _, isPrerelease := strings.Cut(parts[2], "-")
	patch, err := strconv.Atoi(digits)
	if err != nil {
		return "", fmt.Errorf("%q is not a version", version)
	}
	if !isPrerelease {
		patch++
	}
	return fmt.Sprintf("%s.%s.%d", parts[0], parts[1], patch), nil
}
