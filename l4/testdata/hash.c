/*
 * The hash of clients as a program in the kernel has to write it: without a type of
 * 128 bits. Reads the vectors of hash.txt from standard input; exits with 1 if one of
 * them differs, with 2 if there are none.
 */
#include <stdint.h>
#include <stdio.h>

struct wide {
	uint64_t hi, lo;
};

/* 64 by 64 bits, of four products of 32 by 32 */
static struct wide product(uint64_t a, uint64_t b)
{
	uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
	uint64_t low = a0 * b0;
	uint64_t mid = a1 * b0 + (low >> 32);
	uint64_t rest = a0 * b1 + (uint32_t)mid;
	struct wide p = { a1 * b1 + (mid >> 32) + (rest >> 32), rest << 32 | (uint32_t)low };

	return p;
}

static uint64_t fold(uint64_t a, uint64_t b)
{
	struct wide p = product(a, b);

	return p.hi ^ p.lo;
}

static uint64_t word(const uint8_t *b)
{
	uint64_t w = 0;

	for (int i = 7; i >= 0; i--)
		w = w << 8 | b[i];
	return w;
}

/* addr is IPv6, or IPv4 mapped into it */
static uint64_t hash_addr(const uint8_t addr[16], uint16_t port, uint64_t seed)
{
	uint64_t h = fold(word(addr) ^ 0xa0761d6478bd642f, word(addr + 8) ^ seed ^ 0xe7037ed1a0b428db);

	return fold(h ^ 0x8ebc6af09c88c6e3, port ^ seed ^ 0x589965cc75374cc3);
}

int main(void)
{
	char line[256], text[33];
	unsigned port, slot, byte;
	unsigned long long seed, hash;
	int n = 0, wrong = 0;

	while (fgets(line, sizeof line, stdin)) {
		uint8_t addr[16];

		if (line[0] == '#' || line[0] == '\n')
			continue;
		if (sscanf(line, "%32s %u %llx %llx %u", text, &port, &seed, &hash, &slot) != 5)
			return 2;
		for (int i = 0; i < 16; i++) {
			if (sscanf(text + 2 * i, "%2x", &byte) != 1)
				return 2;
			addr[i] = byte;
		}
		uint64_t got = hash_addr(addr, port, seed);
		if (got != hash || product(got, 65537).hi != slot) {
			printf("%s %u %llx: %llx, slot %u\n", text, port, seed, (unsigned long long)got, (unsigned)product(got, 65537).hi);
			wrong = 1;
		}
		n++;
	}
	return n ? wrong : 2;
}
