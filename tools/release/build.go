package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// compile builds the program for a platform and returns its content.
func (c *releaseConfig) compile(ctx context.Context, t target, n names, work string) ([]byte, error) {
	b := c.Builds[0]
	ldflags, err := n.fill(b.LDFlags[0], t)
	if err != nil {
		return nil, err
	}
	out := filepath.Join(work, t.os+"-"+t.arch)
	args := append([]string{"build"}, b.Flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-ldflags", ldflags, "-o", out, b.Main)...)
	cmd.Env = append(append(os.Environ(), "GOFLAGS=", "GOOS="+t.os, "GOARCH="+t.arch), b.Env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building for %s/%s: %w", t.os, t.arch, err)
	}
	return os.ReadFile(out)
}
