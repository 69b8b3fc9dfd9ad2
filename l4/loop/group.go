package loop

// Group is loops that run, one per core. The datapaths share them: what is
// registered with a loop by one package takes turns with that of another.
type Group []*Loop

// Start makes n loops, at least one, and runs them. Stop ends them.
func Start(n int) (Group, error) {
	var g Group
	for range max(n, 1) {
		l, err := New()
		if err != nil {
			g.Stop()
			return nil, err
		}
		go l.Run()
		g = append(g, l)
	}
	return g, nil
}

// Stop ends every loop, each after what was posted to it before.
func (g Group) Stop() {
	for _, l := range g {
		l.Stop()
	}
}

// Do runs f on every loop, with the loop's index, and returns when all have.
// Loops that have been stopped are left out. It must not be called on a loop.
func (g Group) Do(f func(i int, l *Loop)) {
	done := make(chan struct{}, len(g))
	for i, l := range g {
		if !l.Post(func() { f(i, l); done <- struct{}{} }) {
			done <- struct{}{}
		}
	}
	for range g {
		<-done
	}
}
