// SPDX-License-Identifier: Apache-2.0
// Devices that a laptop's firmware has: mains, a battery, a lid, a light sensor, a thermal zone, a fan, a power meter.
//
// What they say lies in 64 KiB of memory which the kernel leaves alone (memmap=64K$0x40000000) and the host writes to:
// tests/lab/outside.py has the same list. There is no interrupt: what wants one is told by the file uevent of a device.
// And what has to happen on waking from S3, which resets the chipset: SeaBIOS 1.16 does not say again where the registers
// of power management are. All of them then read as ones: the timer stands still, and neither sleep nor power off works.
// Source: ACPI 6.5, chapters 4.8 (registers), 7.4 (_PTS, _WAK), 9 (lid, light), 10 (power supplies, power meters) and 11
// (thermal zones, fans); of the registers before those: Intel ICH9 datasheet, 13.1 (LPC bridge) and 13.8 (PMBASE).
DefinitionBlock ("", "SSDT", 2, "LAB", "DEVICES", 1)
{
    External (\_SB.PCI0.SF8, DeviceObj) // What qemu's own table calls the LPC bridge, 00:1f.0.
    Scope (\_SB.PCI0.SF8)
    {
        OperationRegion (PMBR, PCI_Config, 0x40, 0x08)
        Field (PMBR, DWordAcc, NoLock, Preserve)
        {
            PMBA, 32, // PMBASE: where they are.
            ACTL, 32, // ACPI_CNTL: whether they are there.
        }
    }
    OperationRegion (PMRG, SystemIO, 0x0600, 0x30)
    Field (PMRG, WordAcc, NoLock, Preserve)
    {
        Offset (0x02),
        PM1E, 16, // Which of the fixed events interrupt.
        PM1C, 16, // Bit 0, SCI_EN: they interrupt as ACPI's.
        Offset (0x28),
        GPEE, 16, // Which of the general events interrupt: devices that are plugged in.
    }
    Name (SAVE, Package (5) { 0, 0, 0, 0, 0 })
    Method (\_PTS, 1)
    {
        SAVE [0] = \_SB.PCI0.SF8.PMBA
        SAVE [1] = \_SB.PCI0.SF8.ACTL
        SAVE [2] = PM1E
        SAVE [3] = PM1C & 1
        SAVE [4] = GPEE
    }
    Method (\_WAK, 1)
    {
        \_SB.PCI0.SF8.PMBA = DerefOf (SAVE [0])
        \_SB.PCI0.SF8.ACTL = DerefOf (SAVE [1])
        PM1E = DerefOf (SAVE [2])
        PM1C = DerefOf (SAVE [3])
        GPEE = DerefOf (SAVE [4])
        Return (Package (2) { 0, 0 })
    }
    Scope (\_SB)
    {
        OperationRegion (SAID, SystemMemory, 0x40000000, 0x40)
        Field (SAID, DWordAcc, NoLock, Preserve)
        {
            PLUG, 32, // Mains plugged in: 0 or 1.
            BATT, 32, // Battery present: 0 or 1.
            BATS, 32, // 1 discharges, 2 charges, 4 critical.
            BATR, 32, // Rate, mW.
            BATE, 32, // Energy left, mWh.
            BATV, 32, // Voltage, mV.
            TEMP, 32, // Temperature, tenths of a kelvin.
            ILLU, 32, // Light, lux.
            LIDO, 32, // Lid open: 0 or 1.
            FANR, 32, // Fan, revolutions a minute.
            PMET, 32, // Power meter, mW.
        }
        Device (ACAD)
        {
            Name (_HID, "ACPI0003")
            Name (_PCL, Package () { \_SB })
            Method (_PSR) { Return (PLUG) }
        }
        Device (BAT0)
        {
            Name (_HID, EisaId ("PNP0C0A"))
            Name (_PCL, Package () { \_SB })
            Method (_STA) { If (BATT) { Return (0x1F) } Return (0x0F) }
            Name (_BIX, Package (20)
            {
                0, 0, 50000, 48000, 1, 11400, 4800, 2400, 143, 95000, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF,
                100, 100, "LABBAT", "0001", "LION", "LAB"
            })
            Method (_BST) { Return (Package (4) { BATS, BATR, BATE, BATV }) }
        }
        Device (LID0)
        {
            Name (_HID, EisaId ("PNP0C0D"))
            Method (_LID) { Return (LIDO) }
        }
        Device (ALS0)
        {
            Name (_HID, "ACPI0008")
            Method (_ALI) { Return (ILLU) }
            Name (_ALR, Package () { Package () { 70, 0 }, Package () { 100, 300 }, Package () { 150, 1000 } })
        }
        Device (FAN0)
        {
            Name (_HID, EisaId ("PNP0C0B"))
            Name (_FIF, Package () { 0, 1, 1, 0 })
            Name (_FPS, Package ()
            {
                0,
                Package () { 0, 0xFFFFFFFF, 0, 0, 0 },
                Package () { 100, 0xFFFFFFFF, 4000, 0, 0 }
            })
            Method (_FSL, 1) { }
            Method (_FST) { Return (Package () { 0, 100, FANR }) }
        }
        Device (METR)
        {
            Name (_HID, "ACPI000D")
            Name (_PMC, Package ()
            {
                1, 0, 0, 100000, 1000, 1000, 60000, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, "LABMETER", "0001", "lab"
            })
            Method (_PAI, 1) { Return (0) }
            Method (_GAI) { Return (1000) }
            Method (_PMM) { Return (PMET) }
            Name (_PMD, Package () { \_SB })
        }
        ThermalZone (TZ00)
        {
            Method (_TMP) { Return (TEMP) }
            Method (_CRT) { Return (3932) }
            Method (_PSV) { Return (3632) }
            Name (_TC1, 1)
            Name (_TC2, 1)
            Name (_TSP, 10)
            Name (_TZP, 10)
        }
    }
}
