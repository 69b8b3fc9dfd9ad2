package admin

import (
	"sync"
	"time"
)

const (
	// leastWindow is the least time rates are averaged over: less is noise.
	leastWindow = time.Second
	// mostWindow is the most: an average over longer does not tell what is now.
	mostWindow = time.Minute
)

// A sampler asks a daemon for its status and adds rates, by comparing with what
// was asked before. It keeps nothing up to date while nobody asks.
type sampler struct {
	d Daemon

	mu     sync.Mutex // guards the following
	latest Status     // the one to become earlier; Now is zero if there is none
	before Status     // what rates are taken against; same
}

// status returns the daemon's status with rates, unless nobody has asked within
// the last minute.
func (s *sampler) status() Status {
	st := s.d.Status()
	if st.Now.IsZero() {
		st.Now = time.Now()
	}
	normalise(&st)
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := st.Now.Sub(s.latest.Now); age >= leastWindow {
		s.before, s.latest = s.latest, st
	}
	if window := st.Now.Sub(s.before.Now); window >= leastWindow && window <= mostWindow {
		st.addRates(&s.before, window)
	}
	return st
}

// normalise makes empty lists of absent ones: JSON has a null for nil, which
// readers of a list do not expect.
func normalise(st *Status) {
	list := func(s *[]string) {
		if *s == nil {
			*s = []string{}
		}
	}
	list(&st.Warnings)
	if st.Services == nil {
		st.Services = []Service{}
	}
	for i := range st.Services {
		list(&st.Services[i].Listen)
		for _, m := range []*map[string]uint64{&st.Services[i].Outcomes, &st.Services[i].Refused} {
			if *m == nil {
				*m = map[string]uint64{}
			}
		}
		normaliseProtocol(&st.Services[i])
	}
	if st.Pools == nil {
		st.Pools = []Pool{}
	}
	for i := range st.Pools {
		if st.Pools[i].Backends == nil {
			st.Pools[i].Backends = []Backend{}
		}
	}
}

func normaliseProtocol(v *Service) {
	if v.TLS != nil && v.TLS.Certificates == nil {
		v.TLS.Certificates = []Certificate{}
	}
	if v.TLS != nil {
		for i := range v.TLS.Certificates {
			if v.TLS.Certificates[i].Names == nil {
				v.TLS.Certificates[i].Names = []string{}
			}
		}
	}
	if v.UDP != nil && v.UDP.Dropped == nil {
		v.UDP.Dropped = map[string]uint64{}
	}
}

// addRates fills in what happened a second since before, which is window older.
// Services and backends that before does not have stay without.
func (s *Status) addRates(before *Status, window time.Duration) {
	s.RatesOver = window.Seconds()
	services := map[string]*Service{}
	for i := range before.Services {
		services[before.Services[i].Name] = &before.Services[i]
	}
	for i := range s.Services {
		if now, then := &s.Services[i], services[s.Services[i].Name]; then != nil {
			now.Rates = &Rates{
				Connections: rate(now.Total, then.Total, window),
				BytesIn:     rate(now.BytesIn, then.BytesIn, window),
				BytesOut:    rate(now.BytesOut, then.BytesOut, window),
			}
			if now.UDP != nil && then.UDP != nil {
				now.UDP.Rates = &DatagramRates{
					In:  rate(now.UDP.DatagramsIn, then.UDP.DatagramsIn, window),
					Out: rate(now.UDP.DatagramsOut, then.UDP.DatagramsOut, window),
				}
			}
		}
	}
	type key struct{ pool, name, address string }
	backends := map[key]*Backend{}
	for _, p := range before.Pools {
		for i, b := range p.Backends {
			backends[key{p.Name, b.Name, b.Address}] = &p.Backends[i]
		}
	}
	for _, p := range s.Pools {
		for i := range p.Backends {
			now := &p.Backends[i]
			if then := backends[key{p.Name, now.Name, now.Address}]; then != nil {
				now.Rates = &Rates{
					Connections: rate(now.Total, then.Total, window),
					BytesIn:     rate(now.BytesIn, then.BytesIn, window),
					BytesOut:    rate(now.BytesOut, then.BytesOut, window),
				}
			}
		}
	}
}

// rate is the growth a second; what fell was removed and added again meanwhile
// and began anew.
func rate(now, then uint64, window time.Duration) float64 {
	if now < then {
		then = 0
	}
	return float64(now-then) / window.Seconds()
}
