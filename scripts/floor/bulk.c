// The floor of bulk transfers: splice(2) from socket to pipe to socket, as Poise moves
// a direction that has filled a buffer.
//
//   bulk LISTEN BACKEND [LISTEN BACKEND ...]
//
// POISE_FLOOR_PIPE is the size of a pipe in bytes, 262144 unless told otherwise, and
// POISE_FLOOR_TURN how much a direction moves before the others get a turn, 1048576. One
// thread; each connection keeps its pipes.
#include "floor.h"

struct end {
	struct end *peer;
	int fd, pipe[2];
	long inside; // bytes in its pipe, for the peer
	char connected, readable, writable, ended, finished, waits;
};

static int epoll;
static long pipe_size = 256 << 10, turn = 1 << 20;

static struct end *end_of(int fd, int connected) {
	struct end *e = calloc(1, sizeof *e);
	int one = 1;
	e->fd = fd;
	e->connected = e->writable = connected;
	must(pipe2(e->pipe, O_NONBLOCK | O_CLOEXEC), "pipe2");
	must(fcntl(e->pipe[1], F_SETPIPE_SZ, pipe_size), "F_SETPIPE_SZ");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return e;
}

static void shut(struct end *e) {
	for (int i = 0; i < 2; i++, e = e->peer) {
		close(e->fd);
		close(e->pipe[0]);
		close(e->pipe[1]);
		e->fd = -1; // the memory is not given back: an event may still name it
	}
}

// pump returns 1 if its turn ended before its work.
static int pump(struct end *e) {
	struct end *to = e->peer;
	long moved = 0;
	while (e->fd >= 0 && to->connected) {
		while (e->inside > 0) {
			if (!to->writable) return 0;
			ssize_t n = splice(e->pipe[0], NULL, to->fd, NULL, e->inside, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
			if (n < 0 && errno == EAGAIN) {
				to->writable = 0;
				return 0;
			}
			if (n <= 0) {
				shut(e);
				return 0;
			}
			e->inside -= n;
		}
		if (e->ended) {
			if (!e->finished) shutdown(to->fd, SHUT_WR);
			e->finished = 1;
			if (to->finished) shut(e);
			return 0;
		}
		if (!e->readable) return 0;
		if (moved >= turn) return 1;
		ssize_t n = splice(e->fd, NULL, e->pipe[1], NULL, turn, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
		if (n < 0 && errno == EAGAIN) {
			e->readable = 0;
		} else if (n < 0) {
			shut(e);
			return 0;
		} else if (n == 0) {
			e->ended = 1;
		} else {
			e->inside = n;
			moved += n;
		}
	}
	return 0;
}

static struct end *again[2 * BATCH]; // whose turn ended before their work
static int left;

static void serve(struct end *e) {
	if (pump(e) && !e->waits && left < 2 * BATCH) {
		e->waits = 1;
		again[left++] = e;
	}
}

static void take(struct end *listener, const struct sockaddr_in *to) {
	int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0) return;
	struct end *client = end_of(fd, 1);
	struct end *backend = end_of(must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket"), 0);
	client->peer = backend;
	backend->peer = client;
	if (connect(backend->fd, (const struct sockaddr *)to, sizeof *to) < 0 && errno != EINPROGRESS) die("connect");
	watch(epoll, backend->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, backend);
	watch(epoll, client->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, client);
}

int main(int argc, char **argv) {
	static struct epoll_event events[BATCH];
	static struct end listeners[8], *turns[2 * BATCH];
	struct sockaddr_in backends[8];
	int count = (argc - 1) / 2;
	if (getenv("POISE_FLOOR_PIPE")) pipe_size = atol(getenv("POISE_FLOOR_PIPE"));
	if (getenv("POISE_FLOOR_TURN")) turn = atol(getenv("POISE_FLOOR_TURN"));
	epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	for (int i = 0; i < count && i < 8; i++) {
		listeners[i].fd = bound(argv[2 * i + 1], SOCK_STREAM);
		backends[i] = address(argv[2 * i + 2]);
		must(listen(listeners[i].fd, 4096), "listen");
		watch(epoll, listeners[i].fd, EPOLLIN, &listeners[i]);
	}
	for (;;) {
		int n = epoll_wait(epoll, events, BATCH, left > 0 ? 0 : -1), had = left;
		memcpy(turns, again, had * sizeof *turns);
		left = 0;
		for (int i = 0; i < n; i++) {
			struct end *e = events[i].data.ptr;
			if (e >= listeners && e < listeners + 8) {
				take(e, &backends[e - listeners]);
				continue;
			}
			if (events[i].events & EPOLLOUT) e->connected = e->writable = 1;
			if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) e->readable = 1;
			serve(e);
			if (events[i].events & EPOLLOUT) serve(e->peer);
		}
		for (int i = 0; i < had; i++) {
			turns[i]->waits = 0;
			serve(turns[i]);
		}
	}
}
