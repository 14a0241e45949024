package images

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image describes one image.
type Image struct {
	Names  []string // each with a tag
	Root   string   // the folder whose content is the only layer
	Config v1.Config
}

// path is the PATH of an image that sets none.
const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Archive writes the images as one docker-archive.
func Archive(file string, images ...Image) error {
	refs := map[name.Tag]v1.Image{}
	for _, im := range images {
		img, err := im.Build()
		if err != nil {
			return err
		}
		for _, n := range im.Names {
			tag, err := name.NewTag(n)
			if err != nil {
				return fmt.Errorf("name image: %w", err)
			}
			refs[tag] = img
		}
	}
	tmp := file + ".part"
	if err := tarball.MultiWriteToFile(tmp, refs); err != nil {
		os.Remove(tmp)
		return fmt.Errorf("write images to %s: %w", file, err)
	}
	return os.Rename(tmp, file)
}

// Build makes the image in memory. Its layer is read from Root when it is needed.
func (im Image) Build() (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { w.CloseWithError(pack(w, im.Root)) }()
		return r, nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("make layer of %v: %w", im.Names, err)
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("make image %v: %w", im.Names, err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make image %v: %w", im.Names, err)
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Config = im.Config
	if len(file.Config.Env) == 0 {
		file.Config.Env = []string{path}
	}
	return mutate.ConfigFile(img, file)
}

// pack writes a folder's content as a tar stream that depends only on names, owners, modes and bytes.
func pack(w io.Writer, root string) error {
	t := tar.NewWriter(w)
	seen := map[uint64]string{} // inode → first name, for hard links
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(p); err != nil {
				return err
			}
		}
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		h.Name, h.Uname, h.Gname = rel, "", ""
		h.ModTime, h.AccessTime, h.ChangeTime, h.Format = time.Unix(0, 0), time.Time{}, time.Time{}, tar.FormatPAX
		if d.IsDir() {
			h.Name += "/"
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink > 1 {
			if first, ok := seen[st.Ino]; ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
			} else {
				seen[st.Ino] = rel
			}
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			return nil
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
	if err != nil {
		return fmt.Errorf("pack %s: %w", root, err)
	}
	return t.Close()
}
