package cert

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/poise-lb/poise/l4/watch"
)

// part is one thing made of one or more files, which are only good together: a
// certificate and its key, a list of authorities. What was made last stays until
// the files are good for something new.
type part[T any] struct {
	// Set once.
	keys  []string // of the paths in the configuration, for messages
	paths []string
	build func(files []content) (T, error)

	value   T
	problem problems          // why the files, as they are now, are not what is used
	used    [sha256.Size]byte // digest of what value was made of
	tried   [sha256.Size]byte // digest of what was last read, modes included
	mark    watch.Mark
}

// news is what a refresh has done to a part.
type news struct {
	rebuilt bool     // the value was made anew, or why it could not be is new
	changed bool     // the value comes from another content than before
	problem problems // reported once for every change on disk
}

// refresh makes the value anew if the files have changed since the last try.
func (p *part[T]) refresh() news {
	before := stamps(p.paths)
	if !p.mark.Changed(before...) {
		return news{}
	}
	// A pair that is replaced while it is read would be half old and half new.
	var files []content
	for range 3 {
		files = files[:0]
		for _, path := range p.paths {
			files = append(files, read(path))
		}
		after := stamps(p.paths)
		if slices.Equal(before, after) {
			p.mark.Read()
			break
		}
		before = after
		p.mark.Changed(before...)
	}

	sum := digest(files, true)
	if sum == p.tried {
		return news{}
	}
	p.tried = sum
	v, err := p.build(files)
	if err != nil {
		all := problems{err}
		_ = errors.As(err, &all)
		p.problem = nil
		for _, err := range all {
			key := p.keys[0]
			if at := (fault{}); errors.As(err, &at) {
				key = p.keys[at.file]
			}
			err = fmt.Errorf("%s: %w", key, err)
			if p.loaded() {
				err = fmt.Errorf("%w; what was loaded before stays in use", err)
			}
			p.problem = append(p.problem, err)
		}
		return news{rebuilt: true, problem: p.problem}
	}
	used := digest(files, false)
	n := news{rebuilt: true, changed: used != p.used}
	p.value, p.problem, p.used = v, nil, used
	return n
}

// A fault is an error in one of several files that are only good together. Any other
// is in the first of them.
type fault struct {
	file int
	error
}

func (f fault) Unwrap() error { return f.error }

// problems are errors, each of which is read on a line of its own.
type problems []error

func (p problems) Error() string {
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n")
}

func (p problems) Unwrap() []error { return p }

// orNil is the problems as an error, which is nil if there are none.
func (p problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// loaded tells whether there is a value at all.
func (p *part[T]) loaded() bool { return p.used != [sha256.Size]byte{} }
