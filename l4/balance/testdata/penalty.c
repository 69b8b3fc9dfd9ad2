/*
 * What failed flows count for as load, as a program in the kernel has to write it. Reads
 * the vectors of penalty.txt from standard input; exits with 1 if one of them differs,
 * with 2 if there are none.
 */
#include <stdint.h>
#include <stdio.h>

static const uint64_t fall[16] = {
	65536, 62757, 60097, 57549, 55109, 52773, 50535, 48393,
	46341, 44376, 42495, 40693, 38968, 37316, 35734, 34219,
};

static uint64_t penalty(uint64_t word, uint32_t now)
{
	uint64_t v = word >> 32;
	uint32_t steps = 0, age = now - (uint32_t)word;

	if (word && (int32_t)age > 0)
		steps = age / 625;
	v = steps / 16 > 31 ? 0 : v * fall[steps % 16] >> 16 >> steps / 16;
	return (v + 32768) >> 16;
}

int main(void)
{
	char line[256];
	unsigned long long word, want;
	unsigned now;
	int n = 0, wrong = 0;

	while (fgets(line, sizeof line, stdin)) {
		if (line[0] == '#')
			continue;
		if (sscanf(line, "%llx %u %llu", &word, &now, &want) != 3)
			return 2;
		if (penalty(word, now) != want) {
			printf("%llx at %u: %llu\n", word, now, (unsigned long long)penalty(word, now));
			wrong = 1;
		}
		n++;
	}
	return n ? wrong : 2;
}
