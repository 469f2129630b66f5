package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// packedFile is a file in an archive or a package.
type packedFile struct {
	name    string
	mode    int64
	content []byte
}

// writeArchive packs the program and the texts beside it.
func (c *releaseConfig) writeArchive(dist string, t target, n names, program []byte) error {
	a := c.Archives[0]
	name, err := n.fill(a.NameTemplate, t)
	if err != nil {
		return err
	}
	format := a.Formats[0]
	for _, o := range a.FormatOverrides {
		if o.GOOS == t.os {
			format = o.Formats[0]
		}
	}
	var files []packedFile
	for _, f := range a.Files {
		content, err := os.ReadFile(f.Src)
		if err != nil {
			return err
		}
		files = append(files, packedFile{f.Src, f.Info.Mode, content})
	}
	files = append(files, packedFile{t.binary(), a.BuildsInfo.Mode, program})
	var packed []byte
	switch format {
	case "tar.gz":
		packed, err = packTarGz(files, n.at)
	case "zip":
		packed, err = packZip(files, n.at)
	default:
		err = fmt.Errorf("the archive format %q is not known here", format)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, name+"."+format), packed, 0o644)
}

// packTarGz packs files, and directories where a name ends with a slash, as root's.
func packTarGz(files []packedFile, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at, Uname: "root", Gname: "root", Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		if f.name[len(f.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

func packZip(files []packedFile, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(f.mode))
		part, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}
