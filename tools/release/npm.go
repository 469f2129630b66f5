package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed npm/ctxgate.js
var npmScript []byte

//go:embed npm/README.md
var npmReadme []byte

// npmPackage is a package.json.
type npmPackage struct {
	Name                 string            `json:"name"`
	Version              string            `json:"version"`
	Description          string            `json:"description"`
	License              string            `json:"license"`
	Homepage             string            `json:"homepage"`
	Repository           map[string]string `json:"repository"`
	OS                   []string          `json:"os,omitempty"`
	CPU                  []string          `json:"cpu,omitempty"`
	PreferUnplugged      bool              `json:"preferUnplugged,omitempty"` // Yarn keeps packages zipped, and a program cannot run there
	Bin                  map[string]string `json:"bin,omitempty"`
	Files                []string          `json:"files"`
	Engines              map[string]string `json:"engines"`
	OptionalDependencies map[string]string `json:"optionalDependencies,omitempty"`
}

// npmPlatform is a platform as Node names it.
func npmPlatform(t target) (platform, cpu string) {
	platform, cpu = t.os, t.arch
	if platform == "windows" {
		platform = "win32"
	}
	if cpu == "amd64" {
		cpu = "x64"
	}
	return platform, cpu
}

// writeNPMWrapper packs the package ctxgate. The packages of all platforms are its optional dependencies: npm installs
// the one of its platform.
func writeNPMWrapper(dist string, n names, all []target) error {
	pkg := n.newNPMPackage("ctxgate", "The context gateway for AI agents")
	pkg.Bin = map[string]string{"ctxgate": "bin/ctxgate.js"}
	pkg.OptionalDependencies = map[string]string{}
	for _, t := range all {
		pkg.OptionalDependencies[npmName(npmPlatform(t))] = n.version
	}
	return packNPM(dist, fmt.Sprintf("ctxgate-%s.tgz", n.version), n, pkg, packedFile{"bin/ctxgate.js", 0o755, npmScript})
}

// writeNPMProgram packs the program of a platform.
func writeNPMProgram(dist string, n names, t target, program []byte) error {
	platform, cpu := npmPlatform(t)
	pkg := n.newNPMPackage(npmName(platform, cpu), fmt.Sprintf("The program of ctxgate for %s on %s", platform, cpu))
	pkg.OS, pkg.CPU, pkg.PreferUnplugged = []string{platform}, []string{cpu}, true
	return packNPM(dist, fmt.Sprintf("ctxgate-%s-%s-%s.tgz", platform, cpu, n.version), n, pkg, packedFile{"bin/" + t.binary(), 0o755, program})
}

func (n names) newNPMPackage(name, description string) npmPackage {
	return npmPackage{
		Name: name, Version: n.version, Description: description, License: "Apache-2.0", Homepage: "https://github.com/ctxgate/ctxgate",
		Repository: map[string]string{"type": "git", "url": "git+https://github.com/ctxgate/ctxgate.git"},
		Files:      []string{"bin"}, Engines: map[string]string{"node": ">=18"},
	}
}

func npmName(platform, cpu string) string { return "@ctxgate/" + platform + "-" + cpu }

// packNPM packs a package as npm pack does.
func packNPM(dist, file string, n names, pkg npmPackage, program packedFile) error {
	manifest, err := json.MarshalIndent(pkg, "", "  ")
	if err != nil {
		return err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	files := []packedFile{{"package.json", 0o644, append(manifest, '\n')}, program, {"LICENSE", 0o644, license}, {"README.md", 0o644, npmReadme}}
	for i := range files {
		files[i].name = "package/" + files[i].name
	}
	packed, err := packTarGz(files, n.at)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, file), packed, 0o644)
}
