// Command release builds the files of a release into dist: an archive and a bill of materials per platform, Debian
// packages, npm packages and their checksums.
//
//	go run ./tools/release                    # all platforms
//	go run ./tools/release -platforms host    # this one
//
// It reads .goreleaser.yaml, and makes the same archives and packages from it as `goreleaser release --snapshot` does.
// GoReleaser itself has 1,785 packages to compile, which takes longer than all of CI's other builds; so CI uses this
// program, and `make goreleaser` compares the two. The npm packages and the bills of
// materials are only made here.
//
// Path through the files: main.go is the order of work; config.go reads what is used of .goreleaser.yaml; build.go
// compiles; archive.go, deb.go and npm.go pack; sbom.go writes the bill of materials of a program.
//
// The same commit gives the same bytes: times are the commit's, owners are root, and nothing of this machine is in a file.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

func main() {
	platforms := flag.String("platforms", "all", "all, host, or a list such as linux/amd64,windows/arm64")
	dist := flag.String("dist", "dist", "the directory to write")
	version := flag.String("version", "", "the version, such as 1.2.3; default: a snapshot of the commit")
	flag.Parse()
	if err := buildRelease(context.Background(), *platforms, *dist, *version); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func buildRelease(ctx context.Context, platforms, dist, version string) error {
	cfg, err := readConfig(".goreleaser.yaml")
	if err != nil {
		return err
	}
	from, err := readCommit(ctx)
	if err != nil {
		return err
	}
	names, err := cfg.newNames(from, version)
	if err != nil {
		return err
	}
	targets, err := cfg.selectTargets(platforms)
	if err != nil {
		return err
	}
	if err := clearDist(dist); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ctxgate-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()

	// Compilers use all processors, packing uses one: two platforms at a time keep two processors busy.
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, t := range targets {
		group.Go(func() error {
			program, err := cfg.compile(ctx, t, names, work)
			if err == nil {
				err = cfg.writeArchive(dist, t, names, program)
			}
			if err == nil && t.os == "linux" {
				err = cfg.writeDeb(dist, t, names, program)
			}
			if err == nil {
				err = writeNPMProgram(dist, names, t, program)
			}
			if err == nil {
				err = cfg.writeSBOM(dist, t, names, program)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := writeNPMWrapper(dist, names, cfg.targets()); err != nil {
		return err
	}
	return writeChecksums(dist, cfg.Checksum.NameTemplate)
}

// clearDist makes an empty directory. One that this program did not write is left alone.
func clearDist(dist string) error {
	entries, err := os.ReadDir(dist)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "ctxgate") && e.Name() != "checksums.txt" {
			return fmt.Errorf("%s has a file that is not of a release, %s: name another directory with -dist", dist, e.Name())
		}
	}
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	return os.MkdirAll(dist, 0o755)
}

// selectTargets returns the platforms to build.
func (c *releaseConfig) selectTargets(list string) ([]target, error) {
	all := c.targets()
	if list == "all" {
		return all, nil
	}
	if list == "host" {
		list = runtime.GOOS + "/" + runtime.GOARCH
	}
	var out []target
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(t target) bool { return t.os+"/"+t.arch == name })
		if i < 0 {
			return nil, fmt.Errorf("%s is not among the platforms of .goreleaser.yaml", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

// writeChecksums writes the SHA-256 of every file, as sha256sum -c reads them.
func writeChecksums(dist, name string) error {
	entries, err := os.ReadDir(dist)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		content, err := os.ReadFile(filepath.Join(dist, e.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		fmt.Fprintf(&b, "%s  %s\n", hex.EncodeToString(sum[:]), e.Name())
		fmt.Printf("%9d  %s\n", len(content), e.Name())
	}
	return os.WriteFile(filepath.Join(dist, name), []byte(b.String()), 0o644)
}
