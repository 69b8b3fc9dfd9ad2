package tcp

import (
	"reflect"
	"testing"
)

// An idle connection is this struct and two slots of the loop. Its size is the
// product's promise of less than 1 KiB, with room for the collector's slack.
func TestConnectionIsSmall(t *testing.T) {
	const most = 512
	if size := reflect.TypeFor[conn]().Size(); size > most {
		t.Errorf("a connection takes %d bytes, at most %d are wanted", size, most)
	} else {
		t.Logf("a connection takes %d bytes", size)
	}
}
