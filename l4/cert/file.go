package cert

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"

	"github.com/poise-lb/poise/l4/disk"
	"github.com/poise-lb/poise/l4/watch"
)

// maxFile bounds what is read of one file. The bundle of all public authorities
// is a fifth of that; whatever is larger is a mistake in the path.
const maxFile = 1 << 20

// stamps returns those of all paths. A file that is not there has one, too.
func stamps(paths []string) []watch.Stamp {
	all := make([]watch.Stamp, len(paths))
	for i, path := range paths {
		all[i], _ = watch.StampOf(path)
	}
	return all
}

// content is what was read of one file, or why it could not be.
type content struct {
	path string
	data []byte
	mode fs.FileMode
	err  error // without the path
}

func read(path string) content {
	data, info, err := disk.Read(path, maxFile)
	if err != nil {
		return content{path: path, err: disk.Bare(err)}
	}
	return content{path: path, data: data, mode: info.Mode()}
}

// failed says that the file, which is the kind of thing given, could not be read.
func (c *content) failed(kind string) error {
	return fmt.Errorf("%s %s: %w", kind, c.path, c.err)
}

// exposed returns a warning for a file with a secret in it that everybody may read.
func (c *content) exposed() []string {
	if c.mode.Perm()&0o004 == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s can be read by every user of this host (mode %04o); chmod o= %[1]s", c.path, c.mode.Perm())}
}

// digest is equal for files that would be treated equally. modes is about who may
// read them.
func digest(files []content, modes bool) [sha256.Size]byte {
	h := sha256.New()
	for _, f := range files {
		var n [9]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(f.data)))
		if modes {
			n[8] = byte(f.mode.Perm() & 0o007)
		}
		h.Write(n[:])
		h.Write(f.data)
		if f.err != nil {
			io.WriteString(h, f.err.Error())
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
