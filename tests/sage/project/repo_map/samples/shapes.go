package main

type S struct{ a int }
type I interface{ F() }

func (s *S) Serve(l net.Listener) error { return nil }
func main()                             {}
