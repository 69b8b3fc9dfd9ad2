package health

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseStatusRanges(t *testing.T) {
	for in, want := range map[string][]StatusRange{
		"200":               {{200, 200}},
		"200-399":           {{200, 399}},
		"200-399,404":       {{200, 399}, {404, 404}},
		" 200 - 299 , 503 ": nil, // blanks around an item, not inside
		" 200-299 , 503 ":   {{200, 299}, {503, 503}},
		"100-599":           {{100, 599}},
		"200-200":           {{200, 200}},
	} {
		got, err := ParseStatusRanges(in)
		if (err != nil) != (want == nil) {
			t.Errorf("%q: error %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q: -want +got:\n%s", in, diff)
		}
	}
}

func TestParseStatusRangesErrors(t *testing.T) {
	const shape = ` is neither a status code nor a range; want 100 to 599, as in "200-399,404"`
	for in, want := range map[string]string{
		"":           `""` + shape,
		"200,":       `""` + shape,
		"2xx":        `"2xx"` + shape,
		"99":         `"99"` + shape,
		"600":        `"600"` + shape,
		"0200":       `"0200"` + shape,
		"+200":       `"+200"` + shape,
		"200-":       `"200-"` + shape,
		"-200":       `"-200"` + shape,
		"200-300-1":  `"200-300-1"` + shape,
		"200,abc,1":  `"abc"` + shape,
		"399-200":    `"399-200" starts above its end; want "200-399"`,
		"2000000000": `"2000000000"` + shape,
	} {
		_, err := ParseStatusRanges(in)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

func FuzzParseStatusRanges(f *testing.F) {
	f.Add("200-399,404")
	f.Add(" 100 ,599-100")
	f.Fuzz(func(t *testing.T, in string) {
		ranges, err := ParseStatusRanges(in)
		if err != nil {
			return
		}
		for _, r := range ranges {
			if r.Lo < 100 || r.Hi > 599 || r.Lo > r.Hi {
				t.Errorf("%q gives %v", in, r)
			}
			if !statusRanges(ranges).contain(r.Lo) || !statusRanges(ranges).contain(r.Hi) {
				t.Errorf("%v does not contain its ends", r)
			}
		}
		if len(ranges) != strings.Count(in, ",")+1 {
			t.Errorf("%q gives %d ranges", in, len(ranges))
		}
		again, err := ParseStatusRanges(statusRanges(ranges).String())
		if err != nil || !cmp.Equal(ranges, again) {
			t.Errorf("%v reads back as %v, %v", ranges, again, err)
		}
	})
}
