package balance

// Snapshot is a pool at one moment, in plain values.
type Snapshot struct {
	Name      string
	Algorithm string
	Eligible  int   // backends that new flows are spread over
	Active    int64 // leases out, the sum over Backends
	Backends  []BackendSnapshot
}

// BackendSnapshot is one backend of a Snapshot.
type BackendSnapshot struct {
	Name           string
	Addr           Address
	Flags          Flag
	State          string // Flags.State
	Weight         int
	Backup         bool
	MaxConnections int
	Active         int64
	Total          uint64
}

// Snapshot returns the configured backends in order, then the leaving ones. No
// change falls into the middle of it; only leases come and go meanwhile.
func (p *Pool) Snapshot() Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pruneLocked()
	s := Snapshot{Name: p.name, Algorithm: p.spec.Algorithm, Eligible: p.Eligible()}
	for _, list := range [][]*Backend{p.backends, p.leaving} {
		for _, b := range list {
			flags, active := b.Flags(), b.Active()
			s.Active += active
			s.Backends = append(s.Backends, BackendSnapshot{
				Name: b.id.Name, Addr: b.id.Addr, Flags: flags, State: flags.State(),
				Weight: b.Weight(), Backup: b.Backup(), MaxConnections: b.MaxConnections(),
				Active: active, Total: b.Total(),
			})
		}
	}
	return s
}
