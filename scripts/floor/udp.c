// The floor of datagrams: the system calls that Poise makes for them.
//
//   udp LISTEN BACKEND [LISTEN BACKEND ...]
//
// A batch from the clients is one recvmmsg; a session's part of it is one send, or one
// sendmmsg with what is of one size joined (UDP_SEGMENT); replies are received from each
// session's socket with one recvmmsg and go to the clients with one sendmmsg a round,
// joined likewise. Sockets take joined datagrams (UDP_GRO). One thread; sessions never
// end; no policy, no timer, no counter.
#include "floor.h"

#define SLOTS 64
#define SLOT (64 << 10)
#define SESSIONS 4096 // a power of two

struct tray {
	struct mmsghdr headers[SLOTS];
	struct iovec vectors[SLOTS];
	struct sockaddr_in peers[SLOTS];
	char control[SLOTS][CMSG_SPACE(sizeof(int))];
	struct session *owners[SLOTS];
	char (*memory)[SLOT + 320]; // beside each other's cache lines
};

struct session {
	struct sockaddr_in client;
	struct service *service;
	int fd, first, last; // its slots of the tray of requests; -1 = none
	char eager;	     // takes joined datagrams
};

struct service {
	int fd;
	struct sockaddr_in backend;
};

static struct tray requests, replies;
static int next_slot[SLOTS], epoll, used;
static struct session *table[SESSIONS];

static void prepare(struct tray *t) {
	t->memory = calloc(SLOTS, sizeof *t->memory);
	for (int i = 0; i < SLOTS; i++) {
		t->vectors[i] = (struct iovec){t->memory[i], SLOT};
		t->headers[i].msg_hdr = (struct msghdr){.msg_name = &t->peers[i], .msg_iov = &t->vectors[i], .msg_iovlen = 1, .msg_control = t->control[i]};
	}
}

static int receive(struct tray *t, int fd, int from, int to) {
	for (int i = from; i < to; i++) {
		t->headers[i].msg_hdr.msg_namelen = sizeof t->peers[i];
		t->headers[i].msg_hdr.msg_controllen = sizeof t->control[i];
	}
	return recvmmsg(fd, t->headers + from, to - from, 0, NULL);
}

// segment returns the size of the datagrams of a train, or of the only one.
static int segment(struct tray *t, int i) {
	struct cmsghdr *c = CMSG_FIRSTHDR(&t->headers[i].msg_hdr);
	int size = t->headers[i].msg_len;
	if (t->headers[i].msg_hdr.msg_controllen > 0 && c && c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO && *(int *)CMSG_DATA(c) < size)
		return *(int *)CMSG_DATA(c);
	return size;
}

static struct {
	struct mmsghdr headers[SLOTS];
	struct iovec vectors[SLOTS];
	char control[SLOTS][CMSG_SPACE(sizeof(uint16_t))];
	int sizes[SLOTS], segments[SLOTS], counts[SLOTS], full[SLOTS];
	int messages, used;
} out;

static void mail(int fd) {
	for (int done = 0; done < out.messages;) {
		int n = sendmmsg(fd, out.headers + done, out.messages - done, MSG_NOSIGNAL);
		done += n > 0 ? n : 1; // what the kernel does not take is lost
	}
	out.messages = out.used = 0;
}

static void post(int fd, struct sockaddr_in *to, struct tray *t, int slot) {
	int size = t->headers[slot].msg_len, unit = segment(t, slot), m = out.messages - 1;
	int count = unit ? (size + unit - 1) / unit : 1;
	out.vectors[out.used] = (struct iovec){t->memory[slot], size};
	if (m >= 0 && out.headers[m].msg_hdr.msg_name == (void *)to && !out.full[m] && unit <= out.segments[m] &&
	    (count == 1 || unit == out.segments[m]) && out.counts[m] + count <= 64 && out.sizes[m] + size <= 65507) {
		out.headers[m].msg_hdr.msg_iovlen++;
		out.sizes[m] += size;
		out.counts[m] += count;
	} else {
		m = out.messages++;
		out.headers[m].msg_hdr = (struct msghdr){.msg_name = to, .msg_namelen = to ? sizeof *to : 0, .msg_iov = &out.vectors[out.used], .msg_iovlen = 1};
		out.sizes[m] = size;
		out.segments[m] = unit;
		out.counts[m] = count;
	}
	out.used++;
	out.full[m] = !unit || size % out.segments[m]; // a shorter datagram is a train's last
	if (out.counts[m] > 1 && !out.headers[m].msg_hdr.msg_control) {
		out.headers[m].msg_hdr.msg_control = out.control[m];
		out.headers[m].msg_hdr.msg_controllen = sizeof out.control[m];
		struct cmsghdr *c = CMSG_FIRSTHDR(&out.headers[m].msg_hdr);
		*c = (struct cmsghdr){.cmsg_level = IPPROTO_UDP, .cmsg_type = UDP_SEGMENT, .cmsg_len = CMSG_LEN(sizeof(uint16_t))};
		*(uint16_t *)CMSG_DATA(c) = out.segments[m];
	}
	if (out.used == SLOTS) mail(fd);
}

static void eager(int fd) {
	int one = 1, size = 4 << 20;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof one);
}

static struct session *session_of(struct service *s, struct sockaddr_in *client) {
	uint32_t h = (client->sin_addr.s_addr * 2654435761u ^ client->sin_port * 40503u) >> 3;
	for (;; h++) {
		struct session **at = &table[h % SESSIONS];
		if (!*at) {
			struct session *new = *at = calloc(1, sizeof *new);
			*new = (struct session){.client = *client, .service = s, .first = -1};
			new->fd = must(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
			must(connect(new->fd, (struct sockaddr *)&s->backend, sizeof s->backend), "connect");
			watch(epoll, new->fd, EPOLLIN | EPOLLET, new);
			return new;
		}
		if ((*at)->service == s && !memcmp(&(*at)->client, client, sizeof *client)) return *at;
	}
}

static void answer(void) {
	for (int i = 0; i < used;) {
		int fd = replies.owners[i]->service->fd;
		for (; i < used && replies.owners[i]->service->fd == fd; i++) post(fd, &replies.owners[i]->client, &replies, i);
		mail(fd);
	}
	used = 0;
}

static void ask(struct service *s) {
	for (;;) {
		struct session *touched[SLOTS];
		int n = receive(&requests, s->fd, 0, SLOTS), count = 0;
		for (int i = 0; i < n; i++) {
			struct session *e = session_of(s, &requests.peers[i]);
			next_slot[i] = -1;
			if (e->first < 0) {
				e->first = i;
				touched[count++] = e;
			} else {
				next_slot[e->last] = i;
			}
			e->last = i;
		}
		for (int i = 0; i < count; i++) {
			struct session *e = touched[i];
			if (e->first == e->last && segment(&requests, e->first) == (int)requests.headers[e->first].msg_len) {
				if (send(e->fd, requests.memory[e->first], requests.headers[e->first].msg_len, MSG_NOSIGNAL) < 0 && errno != EAGAIN && errno != ECONNREFUSED)
					die("send");
			} else {
				if (!e->eager) eager(e->fd);
				e->eager = 1;
				for (int slot = e->first; slot >= 0; slot = next_slot[slot]) post(e->fd, NULL, &requests, slot);
				mail(e->fd);
			}
			e->first = -1;
		}
		if (n < SLOTS) return;
	}
}

static void reply(struct session *e) {
	for (;;) {
		if (SLOTS - used < 16) answer();
		int room = e->eager ? SLOTS - used : 16, n = receive(&replies, e->fd, used, used + room);
		for (int i = 0; i < n; i++) replies.owners[used++] = e;
		if (n < room) return;
	}
}

int main(int argc, char **argv) {
	static struct service services[8];
	struct epoll_event events[BATCH];
	int count = (argc - 1) / 2;
	prepare(&requests);
	prepare(&replies);
	epoll = must(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
	for (int i = 0; i < count && i < 8; i++) {
		services[i] = (struct service){bound(argv[2 * i + 1], SOCK_DGRAM), address(argv[2 * i + 2])};
		eager(services[i].fd);
		watch(epoll, services[i].fd, EPOLLIN | EPOLLET, &services[i]);
	}
	for (;;) {
		int n = epoll_wait(epoll, events, BATCH, -1);
		for (int i = 0; i < n; i++) {
			void *owner = events[i].data.ptr;
			if (owner >= (void *)services && owner < (void *)(services + 8))
				ask(owner);
			else
				reply(owner);
		}
		answer();
	}
}
