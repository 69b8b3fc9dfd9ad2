// Package admin is the way operators and machines see a running daemon: HTTP
// with JSON over a unix socket, which can also change things, and read-only HTTP
// over TCP with metrics, probes and a status page. It knows the daemon only
// through the Daemon interface and plain values.
//
//	ctl, err := admin.ListenSocket("/run/poise/admin.sock", daemon, room, log)
//	web, err := admin.ListenHTTP("127.0.0.1:9905", daemon, metricsHandler, room, log)
//	...
//	st, err := admin.NewClient("/run/poise/admin.sock").Status(ctx, true)
//	err = admin.StatusTable(os.Stdout, st)
//
// Whoever may connect to the socket is trusted: its mode is 0660, so the owner
// and the group may. Nobody who connects over TCP is.
package admin
