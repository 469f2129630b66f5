package s3

const writerArg = "writer"

func runWriter([]string) int { return 0 }
