package l4

// A Window tells what a histogram has observed of late: during the last WindowTicks
// ticks and since. Who owns it calls Tick at even intervals. The histogram and those
// who observe with it know nothing of the window. The zero value is that of a
// histogram that had observed nothing yet.
type Window struct {
	last   HistogramCounts // at the last tick
	recent [WindowTicks][]few
	next   int
}

// WindowTicks is how many intervals a window looks back.
const WindowTicks = 6

// few is one bucket of an interval. Most intervals fill a handful.
type few struct {
	bucket uint8
	n      uint64
}

// Tick ends an interval; now is the histogram's present state.
func (w *Window) Tick(now *HistogramCounts) {
	w.restart(now)
	list := w.recent[w.next][:0]
	for i, n := range now.Buckets {
		if n > w.last.Buckets[i] {
			list = append(list, few{uint8(i), n - w.last.Buckets[i]})
		}
	}
	w.recent[w.next] = list
	w.next = (w.next + 1) % WindowTicks
	w.last = *now
}

// Counts returns what was observed within the window; now is the histogram's present
// state. There is no sum in it.
func (w *Window) Counts(now *HistogramCounts) (c HistogramCounts) {
	w.restart(now)
	for i, n := range now.Buckets {
		if n > w.last.Buckets[i] {
			c.Buckets[i] = n - w.last.Buckets[i]
			c.Count += c.Buckets[i]
		}
	}
	for _, list := range w.recent {
		for _, f := range list {
			c.Buckets[f.bucket] += f.n
			c.Count += f.n
		}
	}
	return c
}

// restart begins anew with a histogram that has taken the place of another: it has
// observed less.
func (w *Window) restart(now *HistogramCounts) {
	if now.Count < w.last.Count {
		*w = Window{}
	}
}
