// The floor of new connections and of small messages: the system calls that Poise
// makes for them, in its order, and next to nothing between them.
//
//   stream LISTEN BACKEND [LISTEN BACKEND ...]
//
// Per connection: accept4, socket, TCP_NODELAY, connect, two epoll_ctl, a read and a
// send each way, the client's FIN read and passed on, the backend's read, two close.
// Per message: a read and a send. What one round reads is sent at its end. One
// thread; no policy, no timer, no bound, no counter. A peer that does not read ends it.
#include "floor.h"

#define BUFFER (64 << 10)

struct service {
	int fd;
	struct sockaddr_in backend;
};

struct end {
	struct end *peer;
	int fd;
	char accepted, connected, readable, hup, ended;
};

struct part {
	struct end *to;
	int fd, size;
	char *bytes;
};

static char memory[BATCH][BUFFER];
static struct part parts[BATCH];
static int used, epoll;
static struct end *closed[2 * BATCH]; // freed when no event of the round can name them
static int closing;

static void shut(struct end *e) {
	close(e->fd);
	close(e->peer->fd);
	e->fd = e->peer->fd = -1;
	closed[closing++] = e;
	closed[closing++] = e->peer;
}

static void flush(void) {
	for (int i = 0; i < used; i++)
		if (parts[i].to->fd == parts[i].fd && send(parts[i].fd, parts[i].bytes, parts[i].size, MSG_NOSIGNAL) != parts[i].size &&
		    errno != EPIPE && errno != ECONNRESET)
			die("send");
	used = 0;
}

static void pump(struct end *e) {
	while (e->fd >= 0 && e->readable && e->peer->connected) {
		char *room = memory[used];
		ssize_t n = recv(e->fd, room, BUFFER, 0);
		if (n < 0 && errno == EAGAIN) {
			e->readable = 0;
		} else if (n <= 0) {
			e->ended = 1;
			e->readable = 0;
			flush();
			if (n < 0 || e->peer->ended)
				shut(e);
			else
				shutdown(e->peer->fd, SHUT_WR);
		} else {
			parts[used++] = (struct part){e->peer, e->peer->fd, n, room};
			if (n < BUFFER && !e->hup) e->readable = 0;
			if (used == BATCH || n == BUFFER) flush();
		}
	}
}

static void take(struct service *s) {
	for (int i = 0; i < 16; i++) {
		int one = 1, fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) return;
		struct end *pair = calloc(2, sizeof *pair);
		struct end *client = &pair[0], *backend = &pair[1];
		*client = (struct end){.peer = backend, .fd = fd, .connected = 1, .accepted = 1};
		*backend = (struct end){.peer = client, .fd = must(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket")};
		setsockopt(backend->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (connect(backend->fd, (struct sockaddr *)&s->backend, sizeof s->backend) < 0 && errno != EINPROGRESS) die("connect");
		watch(epoll, backend->fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, backend);
		watch(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, client);
	}
}

int main(int argc, char **argv) {
	static struct service services[8];
	static struct epoll_event events[BATCH];
	int count = (argc - 1) / 2, one = 1;
	epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	for (int i = 0; i < count && i < 8; i++) {
		services[i] = (struct service){bound(argv[2 * i + 1], SOCK_STREAM), address(argv[2 * i + 2])};
		setsockopt(services[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); // accepted sockets inherit it
		must(listen(services[i].fd, 4096), "listen");
		watch(epoll, services[i].fd, EPOLLIN, &services[i]);
	}
	for (;;) {
		int n = epoll_wait(epoll, events, BATCH / 2, -1);
		for (int i = 0; i < n; i++) {
			void *owner = events[i].data.ptr;
			if (owner >= (void *)services && owner < (void *)(services + 8)) {
				take(owner);
				continue;
			}
			struct end *e = owner;
			if (e->fd < 0) continue;
			if (events[i].events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) e->hup = 1;
			if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) e->readable = 1;
			if (events[i].events & EPOLLOUT && !e->connected) {
				e->connected = 1;
				pump(e->peer);
			}
			pump(e);
		}
		flush();
		while (closing > 0) {
			struct end *a = closed[--closing], *b = closed[--closing];
			free(a->accepted ? a : b); // both are one allocation, which begins with the client
		}
	}
}
