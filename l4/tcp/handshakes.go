package tcp

import "github.com/poise-lb/poise/l4"

// handshakes is an intrusive list of a worker's clients whose TLS handshakes are
// under way.
type handshakes struct{ oldest, youngest *front }

// beginShaking counts one more handshake. At the service's limit the oldest of this
// worker's makes room: a client that means it is done in two round trips, and whoever
// has been at it for longer than all others is most likely one of those that send a
// byte and wait. It reports false if there is none to make room.
func (c *conn) beginShaking() bool {
	w, f, svc := c.worker, c.front, c.route.service
	limit := c.route.Spec.MaxHandshakes
	if n := svc.Stats.HandshakesActive.Add(1); limit > 0 && n > int64(limit) {
		svc.Notify(noticeHandshakes, "")
		oldest := w.shaking.oldest
		for oldest != nil && oldest.conn.route.service != svc {
			oldest = oldest.younger
		}
		if oldest == nil {
			svc.Stats.HandshakesActive.Add(-1)
			return false
		}
		oldest.conn.finish(l4.RefusedLimit, l4.Proxy)
	}
	f.conn, f.shaking = c, true
	l := &w.shaking
	if f.older = l.youngest; f.older != nil {
		f.older.younger = f
	} else {
		l.oldest = f
	}
	l.youngest = f
	return true
}

// doneShaking takes the connection from the handshakes under way, if it is one.
func (c *conn) doneShaking() {
	f, l := c.front, &c.worker.shaking
	if f == nil || !f.shaking {
		return
	}
	f.shaking = false
	c.route.service.Stats.HandshakesActive.Add(-1)
	if f.older != nil {
		f.older.younger = f.younger
	} else {
		l.oldest = f.younger
	}
	if f.younger != nil {
		f.younger.older = f.older
	} else {
		l.youngest = f.older
	}
	f.older, f.younger, f.conn = nil, nil, nil
}
