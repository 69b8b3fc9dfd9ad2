package balance

// turns hands out weighted turns in an even order: a member of weight w comes
// every 1/w of virtual time, so that of any stretch of the order each has its
// share, and after one unit of time each has had exactly its weight in turns.
// This is stride scheduling (Waldspurger and Weihl, 1995). All in integers, so
// that every machine gets the same order.
type turns struct{ heap []turn }

// turn is one member's next turn.
type turn struct {
	at     uint64 // virtual time, credit/weight
	credit uint64 // turns had, plus the phase of the first, in turnUnits
	weight uint64
	member uint32 // breaks ties
}

// turnUnit is one turn. Different times, at a phase of one half, are at least
// 1/(2·w1·w2) turns apart, which for weights below 2^16 is more than 2^-33: a unit
// near 2^40 keeps them different after the division, and times the 2^17 turns that
// anyone takes it fits 64 bits. 720720 is the least common multiple of 1 to 16, so
// that the phases of a small round robin are exact and equal times really tie.
const turnUnit = 720720 << 20

func newTurns(n int) *turns { return &turns{make([]turn, 0, n)} }

// add enters a member whose first turn is due after phase, in 0..turnUnit, of
// its period. All members are added before the first next.
func (t *turns) add(member int, weight, phase uint64) {
	t.heap = append(t.heap, turn{phase / weight, phase, weight, uint32(member)})
	for i := len(t.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !t.heap[i].before(&t.heap[parent]) {
			return
		}
		t.heap[i], t.heap[parent] = t.heap[parent], t.heap[i]
		i = parent
	}
}

// next returns the member whose turn it is.
func (t *turns) next() uint32 {
	h := t.heap
	top := h[0]
	member := top.member
	top.credit += turnUnit
	top.at = top.credit / top.weight
	i := 0
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(&h[child]) {
			child = right
		}
		if !h[child].before(&top) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = top
	return member
}

func (a *turn) before(b *turn) bool {
	return a.at < b.at || a.at == b.at && a.member < b.member
}
