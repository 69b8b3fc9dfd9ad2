// What the programs of this folder share: addresses, sockets, the event loop's
// descriptor. They relay between 127/8 addresses that are given as ADDRESS:PORT,
// for scripts/bench.sh only: a failure that its loads do not bring about ends them.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 256

static inline void die(const char *what) {
	perror(what);
	exit(1);
}

static inline long must(long result, const char *what) {
	if (result < 0) die(what);
	return result;
}

static inline struct sockaddr_in address(const char *text) {
	char host[64];
	struct sockaddr_in a = {.sin_family = AF_INET};
	const char *colon = strrchr(text, ':');
	if (!colon || colon - text >= (long)sizeof host) die(text);
	memcpy(host, text, colon - text);
	host[colon - text] = 0;
	a.sin_port = htons(atoi(colon + 1));
	if (inet_pton(AF_INET, host, &a.sin_addr) != 1) die(text);
	return a;
}

static inline int bound(const char *text, int type) {
	struct sockaddr_in a = address(text);
	int one = 1, fd = must(socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(bind(fd, (struct sockaddr *)&a, sizeof a), text);
	return fd;
}

static inline void watch(int epoll, int fd, uint32_t events, void *owner) {
	struct epoll_event e = {.events = events, .data.ptr = owner};
	must(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e), "epoll_ctl");
}
