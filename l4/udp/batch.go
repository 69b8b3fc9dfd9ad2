package udp

import "github.com/poise-lb/poise/l4/sock"

// A tray is an inbox whose slots can be strung into chains: the datagrams of one
// batch that go the same way, in the order they came.
type tray struct {
	*sock.Inbox
	segments []int   // of a train: the size of its datagrams; else 0
	next     []int16 // in its chain: the slot's index plus one
}

// A chain is some slots of a tray; the zero chain is none. The numbers are indices
// plus one.
type chain struct{ first, last int16 }

func newTray(n int, peers bool) *tray {
	return &tray{Inbox: sock.NewInbox(n, peers), segments: make([]int, n), next: make([]int16, n)}
}

// push appends slot i to c and reports whether it is the first there.
func (t *tray) push(c *chain, i int) (first bool) {
	t.next[i] = 0
	if first = c.first == 0; first {
		c.first = int16(i + 1)
	} else {
		t.next[c.last-1] = int16(i + 1)
	}
	c.last = int16(i + 1)
	return first
}

// after returns the slot that follows slot i in its chain, and head the first one; -1
// if there is none.
func (t *tray) after(i int) int { return int(t.next[i]) - 1 }

func (c chain) head() int { return int(c.first) - 1 }

// single reports whether c is one slot.
func (c chain) single() bool { return c.first == c.last }

// datagrams returns how many there are in size bytes.
func datagrams(size, segment int) uint64 {
	if segment == 0 || size <= segment {
		return 1
	}
	return uint64((size + segment - 1) / segment)
}

// traffic is what goes one way for one session, or for all that share a socket.
type traffic struct {
	service          *Service
	datagrams, bytes uint64
	// What of it the counters know.
	countedDatagrams, countedBytes uint64
	// singly: the way there cannot cut up trains, or their datagrams are larger
	// than its MTU.
	singly bool
}

func (t *traffic) add(datagrams uint64, bytes int) {
	t.datagrams += datagrams
	t.bytes += uint64(bytes)
}

// lose takes back what add has counted: it did not get through.
func (t *traffic) lose(r DropReason, datagrams, bytes int) {
	t.datagrams -= uint64(datagrams)
	t.bytes -= uint64(bytes)
	t.service.Stats.drop(r, uint64(datagrams))
}

// news returns what has been added since it was last called.
func (t *traffic) news() (datagrams, bytes uint64) {
	datagrams, bytes = t.datagrams-t.countedDatagrams, t.bytes-t.countedBytes
	t.countedDatagrams, t.countedBytes = t.datagrams, t.bytes
	return datagrams, bytes
}

// A mailer sends what is posted to one socket after the other. Nothing waits in it
// between two rounds.
type mailer struct {
	outbox *sock.Outbox
	owners []*traffic // of each message
}

func newMailer(n int) *mailer {
	return &mailer{outbox: sock.NewOutbox(n), owners: make([]*traffic, 0, n)}
}

// post adds a datagram, or a train of them, to what send sends. Only a single
// datagram may have a header in front of it, which the owner has not counted.
func (m *mailer) post(fd int, owner *traffic, to *sock.Destination, header, payload []byte, segment int) (refused bool) {
	if segment > 0 && len(payload) > segment && owner.singly {
		for len(payload) > 0 {
			n := min(segment, len(payload))
			refused = m.post(fd, owner, to, nil, payload[:n], 0) || refused
			payload = payload[n:]
		}
		return refused
	}
	if n := len(m.owners); n > 0 && m.owners[n-1] == owner && len(header) == 0 && !owner.singly && m.outbox.Join(payload, segment) {
		return false
	}
	if m.outbox.Full() {
		refused = m.send(fd)
	}
	m.owners = append(m.owners, owner)
	m.outbox.Add(to, header, payload, segment)
	return refused
}

// send sends what was posted; what the kernel does not take is lost. It reports
// whether an ICMP error was waiting that says that nobody listens there.
func (m *mailer) send(fd int) (refused bool) {
	tried := -1
	for !m.outbox.Empty() {
		i, errno := m.outbox.Send(fd)
		if errno == 0 {
			break
		}
		owner := m.owners[i]
		n, bytes := m.outbox.Failed()
		switch {
		case errno == sock.EAGAIN:
			owner.lose(dropReason(errno), n, bytes)
			m.outbox.Drop()
		case n > 1 && (errno == sock.EINVAL || errno == sock.EMSGSIZE || errno == sock.EIO):
			owner.singly = true
			m.outbox.Split(fd, func(why sock.Errno, bytes int) { owner.lose(dropReason(why), 1, bytes) })
		case tried != i: // this may be the error of an earlier datagram, told now
			tried = i
			refused = refused || errno == sock.ECONNREFUSED
		default:
			owner.lose(dropReason(errno), n, bytes)
			m.outbox.Drop()
		}
	}
	m.owners = m.owners[:0]
	return refused
}
