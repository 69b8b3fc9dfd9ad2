package config

import (
	"strconv"
	"strings"
	"sync"
)

// This file says which values of a configuration come from variables. What is printed
// of such a value is how the file writes it, in whatever form the value itself would be
// printed: 600s that a variable holds is no longer found in "10m".

// Told is what may be told of the value at a path, such as "services.web.timeouts.idle"
// or "pools.pg.check.http.path": the text, or else how the file writes the value, if
// there are variables in it. Items are counted as in the file; listeners are counted
// with their ranges expanded. Upper and lower case are the same, as in server names.
func (f *File) Told(path, text string) string {
	if written, ok := f.Origins[strings.ToLower(path)]; ok {
		return written
	}
	return text
}

// ToldRule is what may be told of the protocols that the i-th rule of the service's SNI
// is for.
func (f *File) ToldRule(s Service, i int) []string {
	r, nth := s.SNI.Rules[i], 0
	for _, before := range s.SNI.Rules[:i] {
		if before.Pattern == r.Pattern {
			nth++
		}
	}
	path := join("services."+s.Name+".sni", word(r.Pattern))
	told := make([]string, len(r.ALPN))
	for k, protocol := range r.ALPN {
		told[k] = f.Told(index(index(path, nth)+".alpn", k), f.Told(index(path+".alpn", k), protocol))
	}
	return told
}

// wrote remembers a value that has variables in it.
func (r *report) wrote(v *value) {
	if r.origins == nil {
		r.origins = map[string]string{}
	}
	r.origins[strings.ToLower(v.path)] = v.written
}

// told is what messages about several keys may tell of the value of one of them, its own
// or an inherited one: the text, or else how the file writes it.
func (o *object) told(key, text string) string {
	for ; o != nil; o = o.above {
		if !o.gives(key) {
			continue
		}
		if written, ok := o.origins[strings.ToLower(join(o.path, key))]; ok {
			return written
		}
		break
	}
	return text
}

// leaves are the paths of the keys that hold a value: what is below such a key is
// replaced with it.
var leaves = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for _, r := range catalogue() {
		if r.keys == nil {
			all[r.path] = true
		}
	}
	return all
})

// replaces reports whether the object itself gives the key that holds the value at a
// path below it. The section is "services" or "pools".
func (o *object) replaces(section, below string) bool {
	for i := range len(below) + 1 {
		if i < len(below) && below[i] != '.' && below[i] != '[' {
			continue
		}
		if key := below[:i]; o.gives(key) && leaves()[join(section+".NAME", key)] {
			return true
		}
	}
	return false
}

// handDown gives the objects of a section what they have from its defaults.
func handDown[T interface {
	replaces(section, below string) bool
}](origins map[string]string, section string, objects map[string]T,
) {
	prefix := "defaults." + section + "."
	for path, written := range origins {
		below, ok := strings.CutPrefix(path, prefix)
		if !ok {
			continue
		}
		for name, o := range objects {
			if !o.replaces(section, below) {
				origins[join(section, name)+"."+below] = written
			}
		}
	}
}

// inherited returns the origins, also for the objects that inherit the values.
func (r *report) inherited(services []*service, pools poolsByName) map[string]string {
	if len(r.origins) == 0 {
		return nil
	}
	byName := make(map[string]*service, len(services))
	for _, s := range services {
		byName[s.Name] = s
	}
	handDown(r.origins, "services", byName)
	handDown(r.origins, "pools", pools.of)
	for _, s := range services {
		r.listeners(s)
	}
	for _, p := range pools.sorted {
		p.follow(r.origins)
	}
	return r.origins
}

// follow gives values that are other keys' by default the origins of those.
func (p *pool) follow(origins map[string]string) {
	as := func(key, from string) {
		if written, ok := origins[join(p.path, from)]; ok {
			origins[join(p.path, key)] = written
		}
	}
	if p.Check.FastInterval == p.Check.Interval {
		as("check.fast_interval", "check.interval")
	}
	for i, b := range p.backends {
		item := index("backends", i)
		if b.MaxConnections == inherit {
			as(item+".max_connections", "max_connections")
		}
		as(item+".address", item) // which is short for it
		if b.Name == "" || b.Name == b.Addr.String() {
			as(item+".name", item+".address")
		}
	}
}

// listeners counts the listeners of a service with their ranges expanded.
func (r *report) listeners(s *service) {
	path := join(s.path, "listen")
	var written []string
	for _, l := range s.listen {
		w := r.origins[index(path, l.item)]
		for range int(l.hi) - int(l.lo) + 1 {
			written = append(written, w)
		}
		delete(r.origins, index(path, l.item))
	}
	for i, w := range written {
		if w != "" {
			r.origins[path+"["+strconv.Itoa(i)+"]"] = w
		}
	}
}
