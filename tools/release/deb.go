package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// writeDeb packs a Debian package: an ar archive of three members (deb(5)).
func (c *releaseConfig) writeDeb(dist string, t target, n names, program []byte) error {
	p := c.NFPMs[0]
	name, err := n.fill(p.FileNameTemplate, t)
	if err != nil {
		return err
	}
	files := []packedFile{{path.Join(p.BinDir, t.binary()), 0o755, program}}
	for _, f := range p.Contents {
		content, err := os.ReadFile(f.Src)
		if err != nil {
			return err
		}
		files = append(files, packedFile{f.Dst, 0o644, content})
	}
	var dirs []string
	var sums strings.Builder
	size := 0
	for _, f := range files {
		for dir := path.Dir(f.name); dir != "/"; dir = path.Dir(dir) {
			dirs = append(dirs, dir)
		}
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.content), f.name[1:])
		size += len(f.content)
	}
	slices.Sort(dirs)
	var data []packedFile
	for _, dir := range slices.Compact(dirs) {
		data = append(data, packedFile{"." + dir + "/", 0o755, nil})
	}
	for _, f := range files {
		data = append(data, packedFile{"." + f.name, f.mode, f.content})
	}
	// A prerelease comes before its release; "-" would begin the revision of the package.
	version := strings.Replace(n.version, "-", "~", 1)
	control := fmt.Sprintf("Package: %s\nVersion: %s\nSection: %s\nPriority: %s\nArchitecture: %s\nMaintainer: %s\nInstalled-Size: %d\nHomepage: %s\nDescription: %s\n",
		p.PackageName, version, p.Section, p.Priority, t.arch, p.Maintainer, size/1024, p.Homepage, strings.ReplaceAll(strings.TrimSpace(p.Description), "\n", "\n "))
	controlTar, err := packTarGz([]packedFile{{"./control", 0o644, []byte(control)}, {"./md5sums", 0o644, []byte(sums.String())}}, n.at)
	if err != nil {
		return err
	}
	dataTar, err := packTarGz(data, n.at)
	if err != nil {
		return err
	}
	packed := packAr([]packedFile{{"debian-binary", 0o644, []byte("2.0\n")}, {"control.tar.gz", 0o644, controlTar}, {"data.tar.gz", 0o644, dataTar}}, n.at)
	return os.WriteFile(filepath.Join(dist, name+".deb"), packed, 0o644)
}

// packAr packs files as ar(5) does.
func packAr(files []packedFile, at time.Time) []byte {
	var b bytes.Buffer
	b.WriteString("!<arch>\n")
	for _, f := range files {
		fmt.Fprintf(&b, "%-16s%-12d%-6d%-6d%-8o%-10d`\n", f.name, at.Unix(), 0, 0, 0o100000|f.mode, len(f.content))
		b.Write(f.content)
		if len(f.content)%2 == 1 {
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
