package sock

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Events is what epoll reports of a descriptor.
type Events uint32

// The events registered for every stream, all edge-triggered: one epoll_ctl in a
// descriptor's life.
const (
	Readable Events = unix.EPOLLIN
	Writable Events = unix.EPOLLOUT
	ReadHup  Events = unix.EPOLLRDHUP // the peer has ended its direction
	Hup      Events = unix.EPOLLHUP   // both directions have ended
	Failed   Events = unix.EPOLLERR
	Urgent   Events = unix.EPOLLPRI // there is urgent data: reads stop short of it

	interest = uint32(unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLPRI | unix.EPOLLET)
	// Of a UDP socket the kernel would report Writable each time that a datagram has
	// left.
	datagramInterest = uint32(unix.EPOLLIN | unix.EPOLLET)
)

// Event says what is ready. Tag is what Add was given, so that an event of a
// closed descriptor is told from one of its successor with the same number.
type Event struct {
	Events Events
	FD     int32
	Tag    uint32
}

// Epoll waits for many descriptors. Only Wake may be called from other
// goroutines than its owner.
type Epoll struct {
	fd, wake int
}

// The kernel's struct epoll_event is packed on amd64 only; unix.EpollEvent has
// the layout of either, with the 64 bits of user data as Fd and Pad.
type rawEvent = unix.EpollEvent

// NewEpoll opens an epoll descriptor and the eventfd that wakes it.
func NewEpoll() (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		Close(fd)
		return nil, os.NewSyscallError("eventfd", err)
	}
	e := &Epoll{fd, wake}
	if errno := e.ctl(unix.EPOLL_CTL_ADD, wake, uint32(unix.EPOLLIN|unix.EPOLLET), 0); errno != 0 {
		e.Close()
		return nil, os.NewSyscallError("epoll_ctl", errno)
	}
	return e, nil
}

// Close gives both descriptors back.
func (e *Epoll) Close() {
	Close(e.wake)
	Close(e.fd)
}

// Add registers fd for all events, edge-triggered. Closing fd removes it.
func (e *Epoll) Add(fd int, tag uint32) Errno {
	return e.ctl(unix.EPOLL_CTL_ADD, fd, interest, tag)
}

// AddDatagrams registers fd, a UDP socket, for Readable and Failed, edge-triggered.
func (e *Epoll) AddDatagrams(fd int, tag uint32) Errno {
	return e.ctl(unix.EPOLL_CTL_ADD, fd, datagramInterest, tag)
}

// Delete ends what Add did for fd, whose socket has other descriptors: closing fd alone
// would leave it registered.
func (e *Epoll) Delete(fd int) { e.ctl(unix.EPOLL_CTL_DEL, fd, 0, 0) }

func (e *Epoll) ctl(op, fd int, events, tag uint32) Errno {
	ev := rawEvent{Events: events, Fd: int32(fd), Pad: int32(tag)}
	_, _, err := unix.RawSyscall6(unix.SYS_EPOLL_CTL, uintptr(e.fd), uintptr(op), uintptr(fd), uintptr(unsafe.Pointer(&ev)), 0, 0)
	return err
}

// Wake makes a running or the next Wait return, with an event of tag 0 that is
// nobody's. Edge-triggered, the eventfd need not be read to be silent again.
// Safe from any goroutine.
func (e *Epoll) Wake() {
	one := uint64(1) // in the machine's byte order
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(e.wake), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
}

// Batch holds the events of one wait.
type Batch struct {
	raw [256]rawEvent
}

// Event returns the i-th event of the batch.
func (b *Batch) Event(i int) Event {
	ev := &b.raw[i]
	return Event{Events(ev.Events), ev.Fd, uint32(ev.Pad)}
}

// Poll waits until something is ready or timeout milliseconds have passed, and
// keeps its processor from other goroutines meanwhile: for what is expected at
// once.
func (e *Epoll) Poll(b *Batch, timeout int) int {
	n, _, err := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&b.raw)), uintptr(len(b.raw)), uintptr(timeout), 0, 0)
	if err != 0 {
		return 0 // EINTR
	}
	return int(n)
}

// Wait blocks until something is ready or timeout milliseconds have passed; -1
// means for ever. It tells the scheduler, which may use the processor meanwhile.
func (e *Epoll) Wait(b *Batch, timeout int) int {
	n, _, err := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd), uintptr(unsafe.Pointer(&b.raw)), uintptr(len(b.raw)), uintptr(timeout), 0, 0)
	if err != 0 {
		return 0 // EINTR
	}
	return int(n)
}
