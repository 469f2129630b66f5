package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// sbom is a software bill of materials, as CycloneDX 1.6 writes it.
type sbom struct {
	Format       string          `json:"bomFormat"`
	SpecVersion  string          `json:"specVersion"`
	SerialNumber string          `json:"serialNumber"`
	Version      int             `json:"version"`
	Metadata     sbomMetadata    `json:"metadata"`
	Components   []sbomComponent `json:"components"`
}

type sbomMetadata struct {
	Timestamp string        `json:"timestamp"`
	Component sbomComponent `json:"component"`
}

type sbomComponent struct {
	Ref     string     `json:"bom-ref"`
	Type    string     `json:"type"`
	Name    string     `json:"name"`
	Version string     `json:"version"`
	PURL    string     `json:"purl"`
	Hashes  []sbomHash `json:"hashes,omitempty"`
}

type sbomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

// writeSBOM lists the modules that are in a program, which the compiler wrote into it. The file is named for the archive.
func (c *releaseConfig) writeSBOM(dist string, t target, n names, program []byte) error {
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		return fmt.Errorf("reading the modules of the program for %s/%s: %w", t.os, t.arch, err)
	}
	name, err := n.fill(c.Archives[0].NameTemplate, t)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(program)
	main := newSBOMComponent("application", info.Main.Path, "v"+n.version)
	main.Name, main.Hashes = t.binary(), []sbomHash{{"SHA-256", hex.EncodeToString(sum[:])}}
	out := sbom{
		Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		// The same program has the same number: a UUID of version 8 (RFC 9562).
		SerialNumber: fmt.Sprintf("urn:uuid:%x-%x-8%03x-8%03x-%x", sum[:4], sum[4:6], uint16(sum[6])<<4|uint16(sum[7])>>4, uint16(sum[8])<<4|uint16(sum[9])>>4, sum[10:16]),
		Metadata:     sbomMetadata{n.at.Format(time.RFC3339), main},
		Components:   []sbomComponent{newSBOMComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))},
	}
	for _, m := range info.Deps {
		component, err := newSBOMModule(m)
		if err != nil {
			return err
		}
		out.Components = append(out.Components, component)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, name+".cdx.json"), append(text, '\n'), 0o644)
}

func newSBOMComponent(kind, path, version string) sbomComponent {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return sbomComponent{Ref: purl, Type: kind, Name: path, Version: version, PURL: purl}
}

// newSBOMModule is a module with its hash of go.sum, which is the SHA-256 of the list of its files.
func newSBOMModule(m *debug.Module) (sbomComponent, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	c := newSBOMComponent("library", m.Path, m.Version)
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != sha256.Size {
		return c, fmt.Errorf("%s %s has no hash in go.sum, only %q", m.Path, m.Version, m.Sum)
	}
	c.Hashes = []sbomHash{{"SHA-256", hex.EncodeToString(sum)}}
	return c, nil
}
