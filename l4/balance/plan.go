package balance

// Plan is what a pool chooses by, for another data path that chooses by the same. It is a
// view in the words of arrays and numbers; all of it is immutable, and not to be changed.
type Plan struct {
	Version uint64 // of the pool's publications; see Pool.Installed
	// Why is what decides besides the algorithm, so that flows have to come to the pool;
	// "" = nothing does.
	Why       Aside
	Algorithm string
	Members   []PlanMember // in the order that Order and Tickets mean
	Order     []uint32     // indices of Members: round-robin's cycle, maglev's table
	From      uint64       // round-robin's Line.Step at the beginning of Order
	Tickets   []Ticket     // of random and p2c; nil if all weights are equal
	Tries     uint64       // the size of a Ticket, which is the sum of the weights
	Hash      HashSpec     // of maglev
	Seed      uint64       // of the hash, that of the algorithm included
}

// PlanMember is a backend that may get flows.
type PlanMember struct {
	ID     BackendID
	Weight uint16
	Load   *Load
}

// Ticket is a slot of the alias table: its own member below Keep, Other from there on.
type Ticket struct {
	Keep  uint64
	Other uint32
}

// Aside is why a flow has to come to the pool.
type Aside string

// The reasons. While several hold, the first is told.
const (
	AsideAB        Aside = "ab"         // two algorithms are compared
	AsideSticky    Aside = "sticky"     // sources are remembered
	AsideTrial     Aside = "trial"      // a member is half-open
	AsideSlowStart Aside = "slow_start" // a member gets its part by the lane
	AsideBalance   Aside = "balance"    // the algorithm needs what only the pool measures
)

// Plan returns what the pool chooses by now. It takes no lock.
func (p *Pool) Plan() Plan {
	v := p.view.Load()
	s := &v.strategies[0]
	plan := Plan{Version: v.version, Algorithm: s.algorithm.Word}
	switch {
	case v.comparing:
		plan.Why = AsideAB
	case v.sticky != nil:
		plan.Why = AsideSticky
	case v.lane != nil && len(v.lane.trials) > 0:
		plan.Why = AsideTrial
	case v.lane != nil && len(v.lane.slow) > 0 && !s.algorithm.ByHash:
		plan.Why = AsideSlowStart
	default:
		plan.choose(s.picker)
	}
	return plan
}

// Watch has f called after each publication of a new plan, steps of slow starts included,
// by which ever goroutine published it; nil ends that. It is called with the pool's lock
// held, so it must not call the pool and only wake what does. A pool that is watched keeps
// removed backends in Leaving until a plan without them is Installed.
func (p *Pool) Watch(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watch = f
}

// Installed says that the other data path chooses by the plan of this version, and by
// none before it.
func (p *Pool) Installed(version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.installed = max(p.installed, version)
	p.pruneLocked()
}

// choose fills in how a picker chooses.
func (p *Plan) choose(by Picker) {
	switch by := by.(type) {
	case *leastConn:
		p.members(by.members)
	case *first:
		p.members(by.members)
	case *roundRobin:
		p.members(by.members)
		p.Order, p.From = by.cycle, by.from
	case *random:
		p.members(by.members)
		p.lottery(by.lottery)
	case *p2c:
		p.members(by.members)
		p.lottery(by.lottery)
	case *maglev:
		p.members(by.members)
		p.Order, p.Hash, p.Seed = by.table, by.hash, by.seed
	default:
		p.Why = AsideBalance
	}
}

func (p *Plan) members(list []Member) {
	p.Members = make([]PlanMember, len(list))
	for i, m := range list {
		p.Members[i] = PlanMember{m.id, m.Weight, m.load}
	}
}

func (p *Plan) lottery(l lottery) {
	p.Tries = l.sum
	for _, t := range l.slots {
		p.Tickets = append(p.Tickets, Ticket{t.keep, t.other})
	}
}
