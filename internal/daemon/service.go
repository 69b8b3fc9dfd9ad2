package daemon

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/poise-lb/poise/health"
	"github.com/poise-lb/poise/internal/config"
	"github.com/poise-lb/poise/internal/control"
	"github.com/poise-lb/poise/internal/resolve"
	"github.com/poise-lb/poise/l4/admit"
	"github.com/poise-lb/poise/l4/cert"
	"github.com/poise-lb/poise/l4/disk"
	"github.com/poise-lb/poise/l4/sock"
	"github.com/poise-lb/poise/l4/tcp"
	"github.com/poise-lb/poise/l4/udp"
)

// service is a configured service and what was read for it from other files.
type service struct {
	config.Service
	admit *admit.Policy
	certs *cert.Store // nil = its TLS, if any, does not end here
}

// Check reads the files that a valid configuration names, certificates and prefixes,
// as a start would, and looks its names up. Its error is everything that is wrong with
// the files, one problem a line; the warnings are what a start would log. Each begins
// with the key of the configuration that names the file.
func Check(file *config.File) (warnings []string, err error) {
	g := &generation{file: file}
	if err := errors.Join(g.planServices(&generation{}), g.planUpstreams(), g.planFiles()); err != nil {
		return nil, hidden(file, err)
	}
	warnings = g.warnings()
	for _, w := range control.Unresolved(file.Pools) {
		warnings = append(warnings, file.Hide(w))
	}
	return warnings, nil
}

// warnings are of the files that the generation uses.
func (g *generation) warnings() (all []string) {
	for _, s := range g.services {
		if s.certs != nil {
			all = append(all, below("services."+s.Name, s.certs.Warnings())...)
		}
	}
	for _, p := range g.file.Pools {
		if c := g.clients[p.Balance.Name]; c != nil {
			all = append(all, below("pools."+p.Balance.Name, c.Warnings())...)
		}
	}
	for i, w := range all {
		all[i] = g.file.Hide(w)
	}
	return all
}

// notSilent names the services that are to refuse by silence and cannot, because this
// process may not.
func (g *generation) notSilent() (all []string) {
	for _, s := range g.services {
		if !s.Admit.Silent {
			continue
		}
		if errno := sock.MayVanish(); errno != 0 {
			all = append(all, fmt.Sprintf("services.%s.on_refuse: drop takes CAP_NET_ADMIN, which this process does not have or has given up: "+
				"clients one hop away see a reset (configs/systemd/net-admin.conf; after a restart)", s.Name))
		}
	}
	return all
}

// hidden is err without what variables of the file hold.
func hidden(file *config.File, err error) error {
	if text := file.Hide(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}

// below completes texts that begin with keys of the object at a path.
func below(path string, texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = path + "." + text
	}
	return all
}

// belowAll does so with every error that err is made of.
func belowAll(path string, err error) error {
	many, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return fmt.Errorf("%s.%w", path, err)
	}
	var all []error
	for _, one := range many.Unwrap() {
		all = append(all, belowAll(path, one))
	}
	return errors.Join(all...)
}

// planServices makes the services of g, reading prefixes and certificates. Those of
// the same name in old lend what has to go on: counts, rates, ticket keys.
func (g *generation) planServices(old *generation) error {
	var errs []error
	for _, spec := range g.file.Services {
		s, before := &service{Service: spec}, old.service(spec.Name)
		if before == nil {
			before = &service{}
		}
		var err error
		if s.admit, err = admit.New(spec.Admit, before.admit); err != nil {
			errs = append(errs, belowAll("services."+spec.Name, err))
		}
		if spec.TLS != nil {
			if s.certs, err = cert.Load(*spec.TLS, before.certs); err != nil {
				errs = append(errs, belowAll("services."+spec.Name, err))
			}
		}
		g.services = append(g.services, s)
	}
	return errors.Join(errs...)
}

// planUpstreams reads what the pools of g need towards their backends.
func (g *generation) planUpstreams() error {
	var errs []error
	g.clients = map[string]*cert.Client{}
	for _, p := range g.file.Pools {
		if p.TLS == nil {
			continue
		}
		c, err := cert.LoadClient(*p.TLS)
		if err != nil {
			errs = append(errs, belowAll("pools."+p.Balance.Name, err))
			continue
		}
		g.clients[p.Balance.Name] = c
	}
	return errors.Join(errs...)
}

// planFiles looks at the files that are not read before the configuration runs, or
// that there need not be yet: what is in their place must not be something else.
func (g *generation) planFiles() error {
	var errs []error
	look := func(path, key string, limit int64) {
		if path == "" {
			return
		}
		if _, _, err := disk.Read(path, limit); errors.Is(err, disk.ErrIrregular) || errors.Is(err, disk.ErrLarge) {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	look(g.file.Admin.State, "admin.state", control.MaxStateFile)
	for _, p := range g.file.Pools {
		key := "pools." + p.Balance.Name
		look(p.Discovery.File, key+".backends_file", resolve.MaxFile)
		if p.Check.Type != health.AllOf {
			if err := p.Check.CheckFiles(); err != nil {
				errs = append(errs, fmt.Errorf("%s.check.%w", key, err))
			}
		}
		for i, c := range p.Check.All {
			if err := c.CheckFiles(); err != nil {
				errs = append(errs, fmt.Errorf("%s.checks[%d].%w", key, i, err))
			}
		}
	}
	return errors.Join(errs...)
}

// mayConnect returns an error if a pool wants to connect in a way that this process
// may not.
func (g *generation) mayConnect() error {
	for _, p := range g.file.Pools {
		if !p.Transparent {
			continue
		}
		if errno := sock.MayBeTransparent(); errno != 0 {
			return fmt.Errorf("pool %s: source: client takes CAP_NET_ADMIN, which this process does not have or has given up: %w", p.Balance.Name, errno)
		}
	}
	return nil
}

// upstream says how the backends of p are connected to.
func (g *generation) upstream(p *control.Pool) *tcp.Upstream {
	t := p.ProxyTLVs
	return &tcp.Upstream{
		Pool: p.Live, Source: p.Source, Transparent: p.Transparent,
		Proxy: tcp.ProxyOut{
			Version:   proxyVersion(p.SendProxy),
			Authority: t.Authority, ALPN: t.ALPN, SSL: t.SSL, UniqueID: t.UniqueID, Custom: t.Custom,
		},
		TLS: g.clients[p.Balance.Name], StartTLS: p.StartTLS, Replay: p.Replay,
	}
}

// proxyVersion is what the word of send_proxy means for TCP.
func proxyVersion(word string) int {
	switch word {
	case "v1":
		return 1
	case "v2":
		return 2
	}
	return 0
}

// routes lists what the data path has to do.
func (g *generation) routes(pools *control.Set) (t []tcp.Route, u []udp.Route) {
	to := map[string]*tcp.Upstream{"": nil}
	for _, p := range pools.Pools() {
		to[p.Balance.Name] = g.upstream(p)
	}
	for _, s := range g.services {
		if s.UDP != nil {
			p := pools.Pool(s.Pool)
			u = append(u, udp.Route{
				Spec: *s.UDP, Pool: p.Live, Source: p.Source, Transparent: p.Transparent,
				SendProxy: datagramProxy(p.SendProxy), ProxyTLVs: p.ProxyTLVs.Custom, Admit: s.admit,
			})
			continue
		}
		r := tcp.Route{Spec: *s.TCP, To: to[s.Pool], Admit: s.admit}
		if s.certs != nil {
			r.TLS = s.certs.Config()
		}
		if s.SNI != nil {
			r.To, r.SNI = nil, s.sni(to)
		}
		t = append(t, r)
	}
	return t, u
}

func datagramProxy(word string) udp.SendProxy {
	switch word {
	case "v2":
		return udp.ProxyFirst
	case "v2-each":
		return udp.ProxyEach
	}
	return udp.ProxyOff
}

func (s *service) sni(to map[string]*tcp.Upstream) *tcp.SNI {
	var rules []tcp.SNIRule
	for _, r := range s.SNI.Rules {
		rules = append(rules, tcp.SNIRule{Name: r.Pattern, ALPN: r.ALPN, To: to[r.Pool]})
	}
	n := tcp.NewSNI(rules)
	n.Default, n.NotTLS, n.NoHello = to[s.SNI.Default], to[s.SNI.NotTLS], to[s.SNI.NoHello]
	return n
}

// certificates lists what is to be kept up to date with its files.
func (d *Daemon) certificates() (list []cert.Source) {
	g := d.generation.Load()
	for _, s := range g.services {
		if s.certs != nil {
			list = append(list, cert.Source{Name: "service " + s.Name, Files: s.certs})
		}
	}
	for _, p := range g.file.Pools {
		if c := g.clients[p.Balance.Name]; c != nil {
			list = append(list, cert.Source{Name: "pool " + p.Balance.Name, Files: c})
		}
	}
	return list
}

// encrypts reports whether TLS begins or ends here.
func (g *generation) encrypts() bool {
	for _, s := range g.services {
		if s.certs != nil {
			return true
		}
	}
	return len(g.clients) > 0
}

// protocol is the word for what a service speaks with its clients.
func (s *service) protocol() string {
	if s.certs != nil {
		return "tls"
	}
	return s.Protocol().String()
}

// scheduleFor gives the Go scheduler the processors that n loops and the work beside
// them can use. A busy loop keeps one to itself; probes, logs and the admin
// interface need one more, and TLS handshakes as many as there are CPUs.
func scheduleFor(n int, g *generation) {
	procs := n + 1
	if g.encrypts() {
		procs = n + min(n, runtime.NumCPU())
	}
	if procs > runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(procs)
	}
}
