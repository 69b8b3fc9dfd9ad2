package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/poise-lb/poise/l4/balance"
	"github.com/poise-lb/poise/l4/disk"
)

// input is one file and its content.
type input struct {
	*source
	data  []byte
	large bool // beyond maxFile, and therefore without data
}

// Load reads the file and every *.yaml of the folder conf.d beside it, in the
// order of their names. The error is Problems if the configuration is invalid;
// any other says which file could not be read, and why.
func Load(path string) (*File, error) {
	sources := []*source{{name: path}}
	dir := filepath.Join(filepath.Dir(path), "conf.d")
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, unreadable(dir, err)
	}
	r := &report{}
	for i, e := range entries {
		src := &source{filepath.Join(dir, e.Name()), i + 1}
		switch {
		case strings.HasPrefix(e.Name(), "."): // an editor's
		case filepath.Ext(src.name) == ".yaml":
			sources = append(sources, src)
		case filepath.Ext(src.name) == ".yml":
			r.add(position{src, 1, 1}, "", "only *.yaml files are read from conf.d; rename it to end in .yaml, or move it away")
		}
	}
	var inputs []input
	for _, src := range sources {
		data, _, err := disk.Read(src.name, maxFile)
		large := errors.Is(err, disk.ErrLarge)
		if err != nil && !large {
			return nil, unreadable(src.name, err)
		}
		inputs = append(inputs, input{src, data, large})
	}
	return load(r, inputs, os.LookupEnv)
}

// Parse reads a whole configuration from memory; the name stands for the file in
// messages. The error is Problems.
func Parse(name string, data []byte) (*File, error) {
	return parse(name, data, os.LookupEnv)
}

// parse is Parse with another environment.
func parse(name string, data []byte, env func(string) (string, bool)) (*File, error) {
	return load(&report{}, []input{{&source{name: name}, data, len(data) > maxFile}}, env)
}

// unreadable names the file once: the errors of os repeat it.
func unreadable(path string, err error) error {
	return fmt.Errorf("cannot read %s: %w", path, disk.Bare(err))
}

// load merges the files and reads what they hold together.
func load(r *report, inputs []input, env func(string) (string, bool)) (*File, error) {
	var files []*node
	broken := false
	for i, in := range inputs {
		if in.large {
			r.add(position{in.source, 1, 1}, "", "the file is larger than %d MiB; is it the right one?", maxFile>>20)
			broken = true
			continue
		}
		n, ok := build(r, in.source, in.data, env)
		switch {
		case !ok:
			broken = true
		case n == nil && i == 0:
			files = append(files, &node{kind: mapping, at: position{in.source, 1, 1}})
		case n == nil:
		case n.kind != mapping:
			r.add(n.at, "", "the file is %s, and must be a mapping of keys such as services and pools", n.kind)
			broken = true
		default:
			files = append(files, n)
		}
	}
	if broken {
		return nil, r.err() // what is missing cannot be told from what was not understood
	}
	f := readFile(r, merge(r, files, ""))
	if err := r.err(); err != nil {
		return nil, err
	}
	f.Variables = r.variables
	return f, nil
}

// merge makes one mapping of the files' at a path. Sections grow together; a single
// key, and the name of a service or pool, has one place.
func merge(r *report, files []*node, path string) *node {
	if len(files) == 1 {
		return files[0]
	}
	out := &node{kind: mapping, at: files[0].at}
	number := map[string]int{} // of a key, among the pairs
	var parts [][]*node        // of each pair, to be merged in turn
	for _, f := range files {
		for _, p := range f.pairs {
			i, given := number[p.key]
			if !given {
				number[p.key] = len(out.pairs)
				out.pairs = append(out.pairs, p)
				parts = append(parts, []*node{p.value})
				continue
			}
			first := out.pairs[i]
			if whole := path == "services" || path == "pools"; whole || first.value.kind != mapping || p.value.kind != mapping {
				r.add(p.at, join(path, word(p.key)), "given twice; it is already at %s, keep one of them", first.at)
				continue
			}
			parts[i] = append(parts[i], p.value)
		}
	}
	for i, p := range out.pairs {
		out.pairs[i].value = merge(r, parts[i], join(path, word(p.key)))
	}
	return out
}

// readFile reads the merged tree against the tables of keys, then applies the
// rules that concern several objects.
func readFile(r *report, tree *node) *File {
	f, top := &File{}, &root{}
	keys := fileKeys(f, top)
	defaults(keys)
	o := newObject(r, "", tree.at, nil)
	o.read(tree, keys)
	if !o.has("services") {
		o.problem([]string{"services"}, "missing; add a service, or write services: {} for none")
	}

	if f.Log.Access == "none" {
		o.idle([]string{"log.access_format"}, []string{"log.access"}, "with access: none", "write access: stdout or a file")
	}
	if f.Admin.HTTP == "" && len(f.Admin.Hosts) > 0 {
		o.problem([]string{"admin.hosts", "admin.http"}, `has no effect with http: "", which is off; remove it`)
	}
	if !bearable(r, top) {
		return nil
	}
	pools := readPools(r, top)
	for _, p := range pools.sorted {
		p.refuseExec(f.Runtime.AllowExec)
	}
	claims := top.admin
	for i := range claims {
		if claims[i].at.source == nil {
			claims[i].at, claims[i].path = tree.at, "the default of admin.http"
		}
	}
	services := readServices(r, top)
	for _, s := range services {
		s.finish(pools)
		s.finishPools(pools)
		claims = append(claims, s.listen...)
	}
	finishUses(services, pools.sorted)
	loops(services, pools, overlaps(r, claims))
	if len(r.problems) > 0 {
		return nil
	}
	for _, p := range pools.sorted {
		p.Balance.Seed = balance.SeedOf(string(f.Cluster.Secret))
		f.Pools = append(f.Pools, p.Pool)
	}
	f.Origins = r.inherited(services, pools)
	for _, s := range services {
		s.expand()
		f.Services = append(f.Services, s.Service)
	}
	return f
}

// maxInherited bounds the values that all objects together inherit. It is what the
// values of defaults come to when they are written out in each, as all of them are
// read and kept once an object.
const maxInherited = 4_000_000

// bearable reports whether what is inherited is within bounds, and reports a problem
// if not: a list of thousands for each of thousands of pools is as good as the
// nested aliases that maxNodes is for.
func bearable(r *report, top *root) bool {
	for _, s := range []struct {
		name            string
		defaults, names *node
	}{{"services", top.serviceDefaults, top.services}, {"pools", top.poolDefaults, top.pools}} {
		if s.defaults == nil || s.names == nil {
			continue
		}
		if n := s.defaults.count() * len(s.names.pairs); n > maxInherited {
			r.add(s.defaults.at, "defaults."+s.name, "%d %s inherit more than %d values together; give long lists to those alone that need them",
				len(s.names.pairs), s.name, maxInherited)
			return false
		}
	}
	return true
}

// poolsByName are the pools, those that failed too.
type poolsByName struct {
	of     map[string]*pool
	names  []string // sorted
	sorted []*pool  // in the same order
}

func readPools(r *report, top *root) poolsByName {
	above := newObject(r, "defaults.pools", position{}, nil)
	proto := pool{object: above}
	keys := poolKeys(&proto)
	defaults(keys)
	if top.poolDefaults != nil {
		above.read(top.poolDefaults, keys)
	}
	pools := poolsByName{of: map[string]*pool{}}
	for _, e := range entries(r, top.pools, "pools") {
		p := proto
		p.object = newObject(r, join("pools", word(e.key)), e.at, above)
		p.Balance.Name = e.key
		if p.read(e.value, poolKeys(&p)) {
			p.finish()
		}
		pools.of[e.key] = &p
	}
	pools.names = slices.Sorted(maps.Keys(pools.of))
	for _, n := range pools.names {
		pools.sorted = append(pools.sorted, pools.of[n])
	}
	return pools
}

// readServices returns the services by name.
func readServices(r *report, top *root) []*service {
	above := newObject(r, "defaults.services", position{}, nil)
	proto := service{object: above}
	keys := serviceKeys(&proto)
	defaults(keys)
	if top.serviceDefaults != nil {
		above.read(top.serviceDefaults, keys)
	}
	var services []*service
	for _, e := range entries(r, top.services, "services") {
		s := proto
		s.object = newObject(r, join("services", word(e.key)), e.at, above)
		s.Name = e.key
		if s.read(e.value, serviceKeys(&s)) {
			services = append(services, &s)
		}
	}
	slices.SortFunc(services, func(a, b *service) int { return strings.Compare(a.Name, b.Name) })
	return services
}

// entries returns the named objects of a section.
func entries(r *report, n *node, section string) []pair {
	if n == nil {
		return nil
	}
	for _, p := range n.pairs {
		if isName(p.key) != "" {
			right := nameRule
			if odd := oddity(p.key); odd != "" {
				right = "it " + odd
			}
			r.add(p.at, join(section, word(p.key)), "%s is no name; %s", quote(p.key), right)
		}
	}
	return n.pairs
}
