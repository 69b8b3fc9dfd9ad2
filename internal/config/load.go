package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// input is one file and its content.
type input struct {
	*source
	data []byte
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
		data, err := read(src.name)
		if err != nil {
			return nil, unreadable(src.name, err)
		}
		inputs = append(inputs, input{src, data})
	}
	return load(r, inputs)
}

// Parse reads a whole configuration from memory; the name stands for the file in
// messages. The error is Problems.
func Parse(name string, data []byte) (*File, error) {
	return load(&report{}, []input{{&source{name: name}, data}})
}

// read returns at most one byte more than a file may have.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile+1))
}

// unreadable names the file once: the errors of os repeat it.
func unreadable(path string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("cannot read %s: %w", path, err)
}

// load merges the files and reads what they hold together.
func load(r *report, inputs []input) (*File, error) {
	var all *node
	broken := false
	for i, in := range inputs {
		n, ok := build(r, in.source, in.data, os.LookupEnv)
		switch {
		case !ok:
			broken = true
		case n == nil && i == 0:
			all = &node{kind: mapping, at: position{in.source, 1, 1}}
		case n == nil:
		case n.kind != mapping:
			r.add(n.at, "", "the file is %s, and must be a mapping of keys such as services and pools", n.kind)
			broken = true
		case all == nil:
			all = n
		default:
			all = merge(r, all, n, "")
		}
	}
	if broken {
		return nil, r.err() // what is missing cannot be told from what was not understood
	}
	f := readFile(r, all)
	if err := r.err(); err != nil {
		return nil, err
	}
	return f, nil
}

// merge adds one file's keys to those of the files before it. Sections grow
// together; a single key, and the name of a service or pool, has one place.
func merge(r *report, a, b *node, path string) *node {
	out := *a
	out.pairs = slices.Clone(a.pairs)
	for _, p := range b.pairs {
		i := slices.IndexFunc(out.pairs, func(q pair) bool { return q.key == p.key })
		if i < 0 {
			out.pairs = append(out.pairs, p)
			continue
		}
		q, at := &out.pairs[i], join(path, word(p.key))
		if whole := path == "services" || path == "pools"; whole || q.value.kind != mapping || p.value.kind != mapping {
			r.add(p.at, at, "given twice; it is already at %s, keep one of them", q.at)
			continue
		}
		q.value = merge(r, q.value, p.value, at)
	}
	return &out
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

	if f.Admin.HTTP == "" && len(f.Admin.Hosts) > 0 {
		o.problem([]string{"admin.hosts", "admin.http"}, `has no effect with http: "", which is off; remove it`)
	}
	pools, poolNames := readPools(r, top)
	for _, p := range pools {
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
		s.finish(poolNames)
		s.finishPools(pools)
		claims = append(claims, s.listen...)
	}
	finishUDPChecks(services, pools)
	overlaps(r, claims)
	loops(services, pools)
	if len(r.problems) > 0 {
		return nil
	}
	for _, p := range pools {
		f.Pools = append(f.Pools, p.Pool)
	}
	for _, s := range services {
		s.expand()
		f.Services = append(f.Services, s.Service)
	}
	return f
}

// readPools returns the pools by name, and the names of those that failed too.
func readPools(r *report, top *root) ([]*pool, []string) {
	above := newObject(r, "defaults.pools", position{}, nil)
	proto := pool{object: above}
	keys := poolKeys(&proto)
	defaults(keys)
	if top.poolDefaults != nil {
		above.read(top.poolDefaults, keys)
	}
	byName := map[string]*pool{}
	for _, e := range entries(r, top.pools, "pools") {
		p := proto
		p.object = newObject(r, join("pools", word(e.key)), e.at, above)
		p.Balance.Name = e.key
		if p.read(e.value, poolKeys(&p)) {
			p.finish()
		}
		byName[e.key] = &p
	}
	names := slices.Sorted(maps.Keys(byName))
	pools := make([]*pool, len(names))
	for i, n := range names {
		pools[i] = byName[n]
	}
	return pools, names
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
			r.add(p.at, join(section, word(p.key)), "%s is no name; %s", quote(p.key), nameRule)
		}
	}
	return n.pairs
}
