#include "textflag.h"

// Each constant is one byte, broadcast to a register.
DATA ·quoteByte+0(SB)/1, $0x22
GLOBL ·quoteByte(SB), RODATA|NOPTR, $1
DATA ·slashByte+0(SB)/1, $0x5c
GLOBL ·slashByte(SB), RODATA|NOPTR, $1
DATA ·lastControl+0(SB)/1, $0x1f
GLOBL ·lastControl(SB), RODATA|NOPTR, $1
DATA ·lowNibble+0(SB)/1, $0x0f
GLOBL ·lowNibble(SB), RODATA|NOPTR, $1

// The letters of two-byte escapes are " / \ b f n r t: 22 2F 5C 62 66 6E 72 74. A letter is one
// of them when the entries of its two nibbles share a bit; rows 2, 5, 6, 7 have a bit each.
DATA ·byLow+0(SB)/8, $0x00040008000d0000
DATA ·byLow+8(SB)/8, $0x0104000200000000
GLOBL ·byLow(SB), RODATA|NOPTR, $16
DATA ·byHigh+0(SB)/8, $0x0804020000010000
DATA ·byHigh+8(SB)/8, $0x0000000000000000
GLOBL ·byHigh(SB), RODATA|NOPTR, $16

// HALF looks at 32 bytes in Y0 and leaves their masks in R8 (slash), R9 (quote), R10 (odd), R11
// (letter).
#define HALF \
	VPCMPEQB Y0, Y9, Y1;  VPMOVMSKB Y1, R8;  \
	VPCMPEQB Y0, Y8, Y1;  VPMOVMSKB Y1, R9;  \
	VPMINUB  Y0, Y10, Y1; VPCMPEQB Y0, Y1, Y1; VPOR Y0, Y1, Y1; VPMOVMSKB Y1, R10; \
	VPAND    Y0, Y11, Y1; VPSHUFB Y1, Y12, Y1; \
	VPSRLW   $4, Y0, Y2;  VPAND Y2, Y11, Y2; VPSHUFB Y2, Y13, Y2; \
	VPAND    Y1, Y2, Y1;  VPCMPEQB Y1, Y14, Y1; VPMOVMSKB Y1, R11

// func classifyAVX2(p *byte, n int, out *block)
TEXT ·classifyAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	MOVQ out+16(FP), DI
	VPBROADCASTB ·quoteByte(SB), Y8
	VPBROADCASTB ·slashByte(SB), Y9
	VPBROADCASTB ·lastControl(SB), Y10
	VPBROADCASTB ·lowNibble(SB), Y11
	VBROADCASTI128 ·byLow(SB), Y12
	VBROADCASTI128 ·byHigh(SB), Y13
	VPXOR Y14, Y14, Y14

next:
	VMOVDQU (SI), Y0
	HALF
	MOVL R8, 0(DI)
	MOVL R9, 8(DI)
	MOVL R10, 16(DI)
	MOVL R11, 24(DI)
	VMOVDQU 32(SI), Y0
	HALF
	MOVL R8, 4(DI)
	MOVL R9, 12(DI)
	MOVL R10, 20(DI)
	MOVL R11, 28(DI)
	ADDQ $64, SI
	ADDQ $32, DI
	DECQ CX
	JNZ  next
	VZEROUPPER
	RET
